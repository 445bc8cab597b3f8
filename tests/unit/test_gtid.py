"""GTID sets: text form and algebra."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_outbox.gtid import GtidRange, GtidSet
from cdc_outbox.model import Position, binlog_file_order

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    "text",
    ["", f"{A}:1", f"{A}:1-5", f"{A}:1-5:7-9", f"{A}:1-5,{B}:3", f"{A}:1-5:tag_one:1-2:4", f"{A}:tag_one:1-2"],
)
def test_text_form_round_trips(text: str) -> None:
    assert str(GtidSet.parse(text)) == text


def test_reads_what_mysql_prints() -> None:
    assert str(GtidSet.parse(f"{A.upper()}:1-5:\n6,\n{B}:1")) == f"{A}:1-6,{B}:1"


@pytest.mark.parametrize("text", ["x:1", f"{A}", f"{A}:5-1", f"{A}:0-3", f"{A}:1-x"])
def test_wrong_text_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        GtidSet.parse(text)


RANGES = st.lists(
    st.builds(
        lambda source, first, length: GtidRange(source, first, first + length),
        st.sampled_from([A, B, f"{A}:tag"]),
        st.integers(1, 60),
        st.integers(0, 10),
    ),
    max_size=20,
)


def members(ranges: list[GtidRange]) -> set[tuple[str, int]]:
    return {(one.source, number) for one in ranges for number in range(one.first, one.last + 1)}


@given(RANGES, RANGES)
def test_algebra_is_that_of_sets(left: list[GtidRange], right: list[GtidRange]) -> None:
    a, b = GtidSet(left), GtidSet(right)
    assert members(list(a)) == members(left)
    assert members(list(a.union(b))) == members(left) | members(right)
    assert members(list(a.difference(b))) == members(left) - members(right)
    assert a.issubset(b) == (members(left) <= members(right))
    assert GtidSet.parse(str(a)) == a


def test_a_set_with_many_holes() -> None:
    """As a replica's that applied in parallel: quadratic work would not end."""
    holes = GtidSet(GtidRange(A, number, number) for number in range(1, 200_000, 2))
    assert GtidSet.parse(str(holes)) == holes
    holes.update(GtidRange(A, number, number) for number in range(2, 1000, 2))
    assert str(holes).startswith(f"{A}:1-999:1001:")
    whole = GtidSet.parse(f"{A}:1-200000")
    assert holes.issubset(whole)
    assert not holes.difference(whole) and not holes.difference(holes)
    assert whole.difference(holes).union(holes) == whole


def test_binlog_files_are_compared_by_number() -> None:
    assert binlog_file_order("binlog.1000000") > binlog_file_order("binlog.999999")
    assert Position("binlog.1000000", 4).reached(Position("binlog.999999", 5000))
    assert not Position("binlog.000002", 4).reached(Position("binlog.000002", 5))
