"""What a read brought, cut into events by both twins."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_outbox.binlog.accelerator import decoder
from tests.unit.binlog.stub_server import packets

pytestmark = pytest.mark.usefixtures("each_decoder")

LARGEST = 300

contents = st.binary(max_size=LARGEST - 1).map(lambda event: b"\0" + event)


def cut(data: bytes) -> tuple[list[bytes], int]:
    """Nothing is passed over."""
    pieces, end = decoder().cut(data, LARGEST, None)
    assert all(isinstance(piece, bytes) for piece in pieces)
    return cast("list[bytes]", pieces), end


@given(st.lists(contents, max_size=8), st.integers(min_value=0))
def test_all_that_is_whole_comes_out(bodies: list[bytes], lacking: int) -> None:
    data = packets(*bodies)
    events, end = cut(data)
    assert (events, end) == ([body[1:] for body in bodies], len(data))
    short = data[: len(data) - lacking % (len(data) + 1)]
    events, end = cut(short)
    assert packets(*(b"\0" + event for event in events)) == data[:end]
    following = bodies[len(events) :]
    assert not following or len(short) - end < 4 + len(following[0])


@pytest.mark.parametrize("last", [b"", b"\xfe", b"\xffwrong", b"\0" * (LARGEST + 1)])
def test_it_stops_before_what_is_no_event_or_too_large(last: bytes) -> None:
    before = packets(b"\0one", b"\0")
    assert cut(before + packets(last) + packets(b"\0two")) == ([b"one", b""], len(before))


@given(st.binary(max_size=60))
def test_any_bytes_are_cut_alike_or_left(data: bytes) -> None:
    events, end = cut(data)
    at = 0
    for event in events:
        size = int.from_bytes(data[at : at + 3], "little")
        assert data[at + 4 : at + 4 + size] == b"\0" + event
        at += 4 + size
    assert at == end <= len(data)
