"""GTID sets and events on the wire."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_outbox.binlog.gtid_wire import decode_gtid_event, decode_gtid_set, encode_gtid_set
from cdc_outbox.gtid import GtidRange, GtidSet

A = "00000000-0000-0000-0000-00000000000a"
B = "b0000000-0000-0000-0000-000000000000"


def sets(tags: st.SearchStrategy[str]) -> st.SearchStrategy[GtidSet]:
    spans = st.builds(
        lambda sid, tag, first, size: GtidRange(f"{sid}:{tag}" if tag else sid, first, first + size),
        st.sampled_from([A, B]),
        tags,
        st.integers(1, 2**62),
        st.integers(0, 1000),
    )
    return st.lists(spans, max_size=20).map(GtidSet)


@given(sets(st.just("")) | sets(st.sampled_from(["", "a", "orders_2", "z" * 32])))
def test_a_set_comes_back(gtids: GtidSet) -> None:
    assert decode_gtid_set(encode_gtid_set(gtids)) == gtids


def test_a_set_without_tags_is_written_as_ever() -> None:
    """Servers before 8.3 know no other form."""
    encoded = encode_gtid_set(GtidSet.parse(f"{B}:7,{A}:1-5:9-9"))
    expected = (
        (2).to_bytes(8, "little")
        + uuid.UUID(A).bytes
        + b"".join(n.to_bytes(8, "little") for n in (2, 1, 6, 9, 10))
        + uuid.UUID(B).bytes
        + b"".join(n.to_bytes(8, "little") for n in (1, 7, 8))
    )
    assert encoded == expected


def test_a_set_with_tags() -> None:
    encoded = encode_gtid_set(GtidSet.parse(f"{A}:1-5:tag_one:1"))
    assert encoded[:8] == bytes([1, 2, 0, 0, 0, 0, 0, 1])
    assert encoded[24] == 0  # untagged comes first
    second = encoded[25 + 3 * 8 :]
    assert second[16:24] == b"\x0etag_one"


@pytest.mark.parametrize("cut", [3, 10, 20, 30])
def test_a_set_cut_short_is_an_error(cut: int) -> None:
    with pytest.raises(ValueError, match="GTID set"):
        decode_gtid_set(encode_gtid_set(GtidSet.parse(f"{A}:1-5"))[:cut])


# Events of MySQL 9.7.4, recorded; see tests/golden/positions.
UNTAGGED = next(
    line for line in open("tests/golden/inserts.hex", encoding="ascii") if bytes.fromhex(line)[4] == 33  # noqa: SIM115, PTH123
)
TAGGED = next(
    line for line in open("tests/golden/positions.hex", encoding="ascii") if bytes.fromhex(line)[4] == 42  # noqa: SIM115, PTH123
)
