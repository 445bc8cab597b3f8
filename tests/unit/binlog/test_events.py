"""The small events. Bytes of real ones are MySQL 9.7.4's."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_outbox.binlog import events as ev
from tests.golden.replay import recorded

HEARTBEAT = bytes.fromhex("000000001b01000000240000006b685f24000062696e6c6f672e30303030303414e7d944")
HEARTBEAT_V2 = bytes.fromhex(
    "000000002901000000320000006b685f240000010d62696e6c6f672e3030303030340209fe6b685f240000000000779c8a7b"
)


@given(st.binary(max_size=200), st.integers(0, 199))
def test_a_checksum_is_right_for_the_whole_event_alone(body: bytes, at: int) -> None:
    event = body + crc32(body).to_bytes(4, "little")
    assert crc32(event) == ev.INTACT
    at %= len(event)
    assert crc32(event[:at] + bytes([event[at] ^ 1]) + event[at + 1 :]) != ev.INTACT


@pytest.mark.parametrize("event", [HEARTBEAT, HEARTBEAT_V2])
def test_heartbeats(event: bytes) -> None:
    assert crc32(event) == ev.INTACT
    assert ev.heartbeat_position(event, len(event) - 4) == ("binlog.000004", 0x245F686B)


def test_a_heartbeat_beyond_4_gib() -> None:
    body = HEARTBEAT_V2[19:-4].replace(bytes.fromhex("6b685f2400000000"), (5 << 32 | 7).to_bytes(8, "little"))
    assert ev.heartbeat_position(HEARTBEAT_V2[:19] + body, 19 + len(body)) == ("binlog.000004", 5 << 32 | 7)


def test_what_begins_a_dump() -> None:
    rotate, description, *_ = recorded("positions")
    assert ev.header(rotate).type == ev.ROTATE and ev.header(rotate).flags & ev.ARTIFICIAL
    assert ev.rotate_target(rotate, len(rotate) - 4)[0] == "binlog.000001"
    assert ev.header(description).type == ev.FORMAT_DESCRIPTION
    assert ev.checksum_size(description) == 4
    assert ev.checksum_size(description[:-5] + b"\0" + description[-4:]) == 0


def test_statements() -> None:
    queries = [event for event in recorded("layouts") if event[4] == ev.QUERY]
    assert ev.query_statement(queries[0], len(queries[0]) - 4) == b"BEGIN"
    truncate = queries[-1]
    assert ev.query_statement(truncate, len(truncate) - 4) == b"TRUNCATE outbox_event"
    assert ev.query_database(truncate) == "shop"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"\xfa", 250),
        (b"\xfc\x01\x02", 0x201),
        (b"\xfd\x01\x02\x03", 0x30201),
        (b"\xfe" + b"\x01" * 8, 0x0101010101010101),
    ],
)
def test_length_encoded_integers(raw: bytes, value: int) -> None:
    assert ev.length_encoded(b"x" + raw + b"y", 1) == (value, 1 + len(raw))


@pytest.mark.parametrize("raw", [b"\xfb", b"\xff", b"\xfc\x01", b"\xfe\x01\x02"])
def test_no_length_encoded_integer(raw: bytes) -> None:
    with pytest.raises(ValueError, match="length"):
        ev.length_encoded(raw, 0)
