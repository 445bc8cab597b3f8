"""Strings of every character set that the server has become the text that it converts them to itself."""

from __future__ import annotations

import pytest

from cdc_outbox.binlog.charsets import UTF8, charset_of, text_of
from cdc_outbox.model import TableName
from tests.integration.binlog_tail import TABLE, Database, Tail


@pytest.fixture
def outbox(outbox: Database) -> Database:
    outbox.execute("SET SESSION sql_mode = ''")  # what a set does not have becomes a question mark
    return outbox


CHARACTERS = [*range(1, 0xD800), *range(0xE000, 0x10000), *range(0x1F600, 0x1F680), *range(0x20000, 0x20400)]
TOGETHER = 4000
PIECES = ["".join(map(chr, CHARACTERS[i : i + TOGETHER])) for i in range(0, len(CHARACTERS), TOGETHER)]


def test_every_character_of_every_set(outbox: Database) -> None:
    sets = {name: width for name, _, _, width in outbox.execute("SHOW CHARACTER SET")}
    assert len(sets) >= 41
    strings = "event_id VARCHAR(64), event_type VARCHAR(128), aggregate_type VARCHAR(64), aggregate_id VARCHAR(64)"
    tables = {name: TableName(outbox.name, f"in_{name}") for name in sets}
    start = outbox.position()
    for name, width in sets.items():
        made = TABLE.format(name=f"in_{name}").replace("CHARSET=utf8mb4", f"CHARSET={name}")
        for column in strings.split(", "):
            made = made.replace(column, column.replace("VARCHAR", "CHAR") if "aggregate" in column else column)
        outbox.execute(made.replace("payload JSON", "payload MEDIUMTEXT"))
        insert = f"INSERT INTO in_{name} (event_id, aggregate_type, aggregate_id, event_type, payload)"
        values = [f"(CONCAT('e', {i}), 'ab', %s, 'x', %s)" for i in range(len(PIECES))]
        outbox.execute(f"{insert} VALUES {', '.join(values)}", [part for piece in PIECES for part in ("x漢é ", piece)])
        if width == 1:
            every_byte = bytes(range(128 if name == "ascii" else 256)).hex()
            of_set = "" if name == "binary" else f"_{name} "
            outbox.execute(f"{insert} VALUES ('bytes', 'ab', 'cd', 'x', {of_set}x'{every_byte}')")
    with Tail(outbox, start, tables=list(tables.values())) as tail:
        tail.wait_for_events(len(sets) * len(PIECES) + sum(width == 1 for width in sets.values()))
    for name, table in tables.items():
        shown = "CAST({0} AS BINARY)" if name == "binary" else "CAST(CONVERT({0} USING utf8mb4) AS BINARY)"
        columns = [shown.format(f"`{one}`") for one in ("event_id", "aggregate_id", "payload")]
        expected = {row[0]: row for row in outbox.execute(f"SELECT {', '.join(columns)} FROM in_{name}")}
        events = [event for event in tail.events if event.table == table]
        assert len(events) == len(expected), name
        for event in events:
            _, aggregate_id, payload = expected[event.event_id.encode()]
            assert event.aggregate_id.encode() == aggregate_id, name
            if not event.incomplete:
                assert event.payload == payload, name
        left = {event.event_id for event in events if event.incomplete}
        # Characters that Python's codecs lack.
        if name not in {"big5", "eucjpms", "gb18030", "tis620", "ujis", "utf16", "utf16le", "utf32", "ucs2"}:
            assert not left, name
        assert len(left) < len(events), name


@pytest.mark.parametrize("charset", ["gbk", "gb2312", "cp932", "sjis", "euckr", "big5", "gb18030", "ujis", "eucjpms"])
def test_every_pair_of_bytes(outbox: Database, charset: str) -> None:
    """Also those that no character of ours becomes: where we give a text it is the server's."""
    convert = text_of(charset)
    assert convert is not None
    pairs = [bytes([a, b]) for a in range(0x81, 0xFF) for b in range(0x21, 0xFF)]
    compared = 0
    for i in range(0, len(pairs), 4000):
        some = pairs[i : i + 4000]
        converted = (
            f"SELECT {', '.join(f'CONVERT(CONVERT(x{one.hex()!r} USING {charset}) USING utf8mb4)' for one in some)}"
        )
        for pair, text in zip(some, outbox.execute(converted)[0], strict=True):
            ours = convert(pair)
            if text is not None and "�" not in ours:
                assert ours == text, pair.hex()
                compared += 1
    assert compared > 5000


def test_every_collation_is_known(outbox: Database) -> None:
    known = outbox.execute("SELECT id, character_set_name FROM information_schema.collations")
    assert len(known) > 200
    for collation, charset in known:
        assert charset_of(collation) == charset
        assert charset in UTF8 or text_of(charset)
