"""GTID sets and events on the wire."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_outbox.binlog.gtid_wire import decode_gtid_event, decode_gtid_set, encode_gtid_set
from cdc_outbox.gtid import GtidRange, GtidSet
from tests.golden.replay import recorded

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


def event_of(name: str, kind: int) -> bytes:
    """The first recorded event of a type."""
    return next(event for event in recorded(name) if event[4] == kind)


def test_a_gtid_event() -> None:
    event = event_of("inserts", 33)
    source, number, micros = decode_gtid_event(event)
    assert source == str(uuid.UUID(bytes=event[20:36])) and number == int.from_bytes(event[36:44], "little")
    header_seconds = int.from_bytes(event[:4], "little")
    assert 0 <= micros - header_seconds * 1_000_000 < 2_000_000


def test_a_replica_keeps_the_original_time() -> None:
    event = bytearray(event_of("inserts", 33))
    event[61:68] = ((1 << 55) | 1_700_000_000_000_000).to_bytes(7, "little")
    event[68:68] = (1_600_000_000_123_456).to_bytes(7, "little")
    assert decode_gtid_event(bytes(event))[2] == 1_600_000_000_123_456


def test_an_anonymous_event_has_a_time_only() -> None:
    event = bytearray(event_of("inserts", 33))
    event[4] = 34
    source, _, micros = decode_gtid_event(bytes(event))
    assert source is None and micros > 1_700_000_000_000_000


def test_an_event_without_times() -> None:
    """MySQL 5.7 and before."""
    assert decode_gtid_event(event_of("inserts", 33)[:65])[2] == 0


def test_a_tagged_event() -> None:
    source, number, micros = decode_gtid_event(event_of("positions", 42))
    assert source is not None and source.endswith(":orders") and str(uuid.UUID(source[:36])) == source[:36]
    assert number == 1 and 1_700_000_000_000_000 < micros < 3_000_000_000_000_000


@pytest.mark.parametrize("size", [19, 25, 40, 50])
def test_a_tagged_event_cut_short_is_an_error(size: int) -> None:
    with pytest.raises(ValueError, match="tagged GTID"):
        decode_gtid_event(event_of("positions", 42)[:size])
