"""Record the golden files anew: `python -m tests.golden.record [name…]` against a server of its own: MySQL, or
MariaDB for names that begin with `mariadb`.

<name>.sql is what ran, <name>.hex the events that the server sent for it, one a line, <name>.json what they must give.
The payloads in it are the server's own `CAST(payload AS CHAR)`: where ours differ nothing is recorded.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from cdc_outbox.binlog.stream import BinlogStream
from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.errors import BinlogUnreadable
from cdc_outbox.model import Position
from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.golden.replay import FOLDER, TABLE, assemble, described, extra_columns
from tests.integration.binlog_tail import Database


def record(outbox: Database, name: str) -> None:
    sql = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    outbox.execute("CREATE DATABASE shop")
    outbox.connection.select_db("shop")
    outbox.execute("CREATE TABLE outbox_event LIKE keep.outbox_event")
    start = outbox.position()
    printed: dict[str, str] = {}
    beside = outbox.connect(database="shop").cursor()
    for statement in re.sub(r"^--.*\n", "", sql, flags=re.MULTILINE).split(";\n"):
        if statement.strip():
            outbox.execute(statement)
            beside.execute("SELECT event_id, CAST(payload AS CHAR) FROM outbox_event")
            printed = dict(beside.fetchall()) | printed  # as it was inserted
    batches = dumped(outbox, start, outbox.position())
    transactions, error = assemble(batches, start, extra_columns(sql))
    for event in (event for t in transactions for event in t.events if not event.incomplete):
        assert event.payload is not None and event.payload.decode() == printed[event.event_id], event
    (FOLDER / f"{name}.hex").write_text("".join(f"{event.hex()}\n" for event in batches), encoding="ascii")
    expected = {
        "start": [start.file, start.offset],
        "transactions": [described(t) for t in transactions],
        "error": error,
    }
    text = json.dumps(expected, ensure_ascii=False, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    beside.connection.close()
    outbox.execute("DROP DATABASE shop")


def dumped(outbox: Database, start: Position, end: Position) -> list[bytes]:
    """The events from one position to another, the artificial ones at the beginning included."""
    events: list[bytes] = []
    follower = Assembler([TABLE], start.file, start.offset)
    stream = BinlogStream(outbox.connect(), server_id=769_000, heartbeat=5)
    stream.start(start)
    try:
        while not Position(follower.file, follower.offset).reached(end):
            batch = [event for event in stream.read() if isinstance(event, bytes)]
            events += batch
            list(follower.feed(batch))
    except BinlogUnreadable:
        pass
    finally:
        stream.close()
    return events


def main(names: list[str]) -> None:
    wanted = names or sorted(path.stem for path in Path(FOLDER).glob("*.sql"))
    for make, chosen in (
        (providers.make_mariadb, [name for name in wanted if name.startswith("mariadb")]),
        (providers.make_mysql, [name for name in wanted if not name.startswith("mariadb")]),
    ):
        if chosen:
            record_all(make({}, print), chosen)


def record_all(server: Server[MySQLEndpoint], names: list[str]) -> None:
    try:
        outbox = Database(server.endpoint, "keep")
        for name in names:
            session = Database.__new__(Database)
            session.server, session.connection = server.endpoint, outbox.connect()
            record(session, name)
            session.close()
            print(f"recorded {name}")
        outbox.close()
    finally:
        server.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
