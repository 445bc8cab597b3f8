"""Dead events whose rows are gone, put back into the outbox from their dead letters."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_outbox.kafka.follower import BEGINNING, Followed, make_follower
from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.event_rows import BATCH, EventRows
from cdc_outbox.mysql.outbox_table import OutboxTable
from cdc_outbox.mysql.queries import query
from cdc_outbox.ops.command_session import command_session

if TYPE_CHECKING:
    from cdc_outbox.config import Settings
    from cdc_outbox.mysql.session import Session
    from cdc_outbox.ops.events import OnProgress

_WAIT = 0.5
_NEEDED = ("event_id", "aggregate_type", "aggregate_id", "event_type", "error_class", "original_topic")


@dataclass(frozen=True)
class Chosen:
    """Which letters: all that every given condition takes. aggregate: TYPE or TYPE/ID; since: seconds ago."""

    event_ids: Sequence[str] = ()
    aggregate: str | None = None
    event_type: str | None = None
    error_class: str | None = None
    since: float | None = None


@dataclass(frozen=True)
class Letter:
    """One dead letter, its headers as text. Of an event that died several times the last one counts."""

    headers: dict[str, str]
    key: bytes | None
    value: bytes | None

    @property
    def event_id(self) -> str:
        return self.headers["event_id"]

    @property
    def error_class(self) -> str:
        return self.headers["error_class"]

    @property
    def whole(self) -> bool:
        """Its value is the payload: neither left out as too large nor wrapped into a structured CloudEvent."""
        wrapped = self.headers.get("content-type", "").startswith("application/cloudevents")
        return self.value is not None and not wrapped

    def taken_by(self, chosen: Chosen) -> bool:
        headers = self.headers
        kind = headers["aggregate_type"]
        return (
            (not chosen.event_ids or self.event_id in chosen.event_ids)
            and chosen.aggregate in (None, kind, f"{kind}/{headers['aggregate_id']}")
            and chosen.event_type in (None, headers["event_type"])
            and chosen.error_class in (None, self.error_class)
        )


@dataclass
class Replayed:
    """How many were put back, still have their row, and cannot be put back because the letter lacks the payload."""

    inserted: int = 0
    there: int = 0
    without_payload: list[str] = field(default_factory=list)


def letters(settings: Settings, chosen: Chosen) -> list[Letter]:
    """The dead letters that were in the topic when this was called, in its order, one for each event."""
    found: dict[str, Letter] = {}
    for record in _records(settings, chosen.since):
        headers = {name: value.decode(errors="replace") for name, value in record.headers.items()}
        if all(name in headers for name in _NEEDED):  # else it is none of ours
            letter = Letter(headers, record.key, record.value)
            if letter.taken_by(chosen):
                found.pop(letter.event_id, None)
                found[letter.event_id] = letter
    return list(found.values())


def _records(settings: Settings, since: float | None) -> Iterator[Followed]:
    begin = BEGINNING if since is None else int((time.time() - since) * 1000)
    with closing(make_follower(settings.kafka)) as follower:
        follower.follow([settings.kafka.dead_letter_topic], begin)
        while not follower.caught_up():
            yield from follower.poll(_WAIT)


def put_back(settings: Settings, table: TableName, chosen: Sequence[Letter], on_progress: OnProgress) -> Replayed:
    """Insert the events whose rows are gone, with their old event ids, as pending; at most 1,000 in a transaction."""
    done = Replayed()
    with command_session(settings) as session:
        if settings.outbox.transient:
            session.log_whole_rows()
        rows = EventRows(session, table)
        for start in range(0, len(chosen), BATCH):
            part = chosen[start : start + BATCH]
            there = {row.event_id for row in rows.by_event_id([letter.event_id for letter in part])}
            done.there += len(there)
            gone = [letter for letter in part if letter.event_id not in there]
            done.without_payload += [letter.event_id for letter in gone if not letter.whole]
            whole = [letter for letter in gone if letter.whole]
            with session.transaction():
                for letter in whole:
                    _insert(session, settings, table, letter)
            done.inserted += len(whole)
            on_progress(start + len(part), len(chosen))
    return done


def _insert(session: Session, settings: Settings, table: TableName, letter: Letter) -> None:
    """The row as the application had inserted it, as far as the letter knows: mapped columns are in its headers."""
    headers, columns = letter.headers, settings.outbox.columns
    row: dict[str, object] = {
        "event_id": letter.event_id,
        "aggregate_type": headers["aggregate_type"],
        "aggregate_id": headers["aggregate_id"],
        "event_type": headers["event_type"],
        "payload": letter.value,
    }
    for header, column in columns.headers.items():
        row.setdefault(column, headers.get(header))
    if columns.topic is not None:
        row.setdefault(columns.topic, headers["original_topic"])
    row.setdefault(columns.key, letter.key)
    for own in ("id", "status", "retry_count", "max_retries", "next_retry_at", "created_at", "updated_at"):
        row.pop(own, None)
    names = ", ".join(schema.identifier(name) for name in row)
    marks = ", ".join("CONVERT(%s USING utf8mb4)" if isinstance(one, bytes) else "%s" for one in row.values())
    session.execute(query("replay", table=table.quoted, columns=names, values=marks), list(row.values()))
    if settings.outbox.transient:
        OutboxTable(table).delete_inserted(session, letter.event_id)
