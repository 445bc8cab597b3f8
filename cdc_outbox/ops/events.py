"""Single events and many, in a person's hands: found, retried, given up, purged. Works whether or not a relay runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymysql.err import MySQLError

from cdc_outbox.errors import Refused
from cdc_outbox.model import SKIPPED, State, TableName
from cdc_outbox.mysql.event_rows import (
    PURGEABLE,
    RETRYABLE,
    SKIPPABLE,
    Change,
    EventRow,
    EventRows,
    Filter,
    batches,
)
from cdc_outbox.mysql.leadership import lock_owner
from cdc_outbox.mysql.outbox_table import OutboxTable, Row
from cdc_outbox.mysql.session import error_code, is_retriable
from cdc_outbox.ops.command_session import command_session

if TYPE_CHECKING:
    from cdc_outbox.config import Settings

MANY = 3600.0
"""Seconds that a statement over all rows of a state may take."""

_ROUNDS = 3
"""How often rows that somebody else has locked are tried."""

OnProgress = Callable[[int, int], None]
"""Called with how many of how many rows have been dealt with."""


@dataclass(frozen=True)
class Action:
    """What may be done to events. states: those it may be done to."""

    name: str
    change: Change
    states: Sequence[State]
    done: str
    then: str
    """What follows from it, once a relay leads."""


RETRY = Action("retry", "retry_by_hand", RETRYABLE, "due now, with all their retries", "the relay takes them")
SKIP = Action("skip", "skip_by_hand", SKIPPABLE, "given up", "the relay sends their dead letters and marks them dead")
PURGE = Action("purge", "purge_dead", PURGEABLE, "deleted", "")
ACTIONS = {action.name: action for action in (RETRY, SKIP, PURGE)}


@dataclass(frozen=True)
class Found:
    """Events found. more: there are further ones. unseen: states of which not every row was looked at."""

    events: list[EventRow]
    more: bool
    unseen: list[State]


@dataclass(frozen=True)
class Selection:
    """Events chosen to be changed: what names them, how many in which state, and some of them in full."""

    rows: dict[TableName, list[Row]]
    counts: dict[State, int]
    sample: list[EventRow]

    @classmethod
    def of(cls, events: Sequence[EventRow]) -> Selection:
        rows: dict[TableName, list[Row]] = defaultdict(list)
        for event in events:
            rows[event.table].append(event.key)
        return cls(dict(rows), dict(Counter(event.state for event in events)), list(events))

    def __len__(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Done:
    """What became of the rows that were to be changed. led: a relay leads now."""

    changed: int
    locked: int
    moved_on: int
    led: bool


def find(
    settings: Settings,
    tables: Sequence[TableName],
    states: Sequence[State],
    chosen: Filter,
    *,
    limit: int,
    everything: bool = False,
) -> Found:
    """The first `limit` events, state by state. everything: look at all rows where a filter has no index."""
    found: list[EventRow] = []
    unseen: list[State] = []
    with command_session(settings, patience=MANY) as session:
        for name in tables:
            rows = EventRows(session, name)
            _can_filter(rows, chosen)
            for state in states:
                wanted = limit + 1 - len(found)
                if wanted > 0:
                    part = rows.find(state, chosen, wanted, everything=everything)
                    found += part
                    if len(part) < wanted and chosen != Filter() and not everything and rows.more_than_looked_at(state):
                        unseen.append(state)
    return Found(found[:limit], len(found) > limit, unseen)


def select(
    settings: Settings, tables: Sequence[TableName], states: Sequence[State], chosen: Filter, sample: int
) -> Selection:
    """Every event of these states that the filter takes, and the first `sample` of them in full."""
    found = Selection({}, {}, [])
    with command_session(settings, patience=MANY) as session:
        for name in tables:
            rows = EventRows(session, name)
            _can_filter(rows, chosen)
            for state in states:
                named = rows.name_all(state, chosen)
                if named:
                    found.rows.setdefault(name, []).extend(named)
                    found.counts[state] = found.counts.get(state, 0) + len(named)
                    first = [id for id, _ in named[: sample - len(found.sample)]]
                    found.sample.extend(sorted(rows.by_id(first), key=lambda row: first.index(row.id)))
    return found


def named(settings: Settings, tables: Sequence[TableName], names: Sequence[str], *, ids: bool) -> list[EventRow]:
    """The events of these event ids, or ids; a name that is no event id may be the id of the only table.

    ids: all names are ids. Raises Refused where one is not there or means two events.
    """
    found: dict[str, list[EventRow]] = {name: [] for name in names}
    numbers = {name: int(name) for name in names if name.isdecimal() and len(name) <= 20}
    with command_session(settings) as session:
        for table in tables:
            rows = EventRows(session, table)
            if not ids:
                by_event_id = {row.event_id: row for row in rows.by_event_id(list(found))}
                for name in names:
                    if name in by_event_id:
                        found[name].append(by_event_id[name])
            by_id = {row.id: row for row in rows.by_id(set(numbers.values()))}
            for name, number in numbers.items():
                if number in by_id and by_id[number] not in found[name]:
                    found[name].append(by_id[number])
    missing = [name for name, there in found.items() if not there]
    if missing:
        raise Refused(
            f"there is no event {', '.join(missing[:10])} in {', '.join(str(one) for one in tables)}; nothing was done",
            hint="it may have been archived or deleted; `cdc-outbox events list --help` shows how to look for events",
        )
    for name, there in found.items():
        if len(there) > 1:
            which = ", ".join(f"event {one.event_id} (id {one.id} of {one.table})" for one in there)
            raise Refused(
                f"{name} means {which}; nothing was done",
                hint="name the table with --table, and say --id where ids are meant",
            )
    return [there[0] for there in found.values()]


def payload_of(settings: Settings, event: EventRow) -> str | None:
    """The payload's text as a record would have it; None is SQL NULL or a row that is gone meanwhile."""
    with command_session(settings) as session:
        full = OutboxTable(event.table).fetch(session, [event.id]).get(event.id)
    if full is None or full.payload is None or full.event_id != event.event_id:
        return None
    return full.payload.decode("utf-8", "backslashreplace")


def refuse_other_states(action: Action, events: Sequence[EventRow]) -> None:
    """Raises Refused, before anything is changed, where one event is in a state that the action is not for."""
    for event in events:
        if event.state not in action.states:
            allowed = " or ".join(action.states)
            raise Refused(
                f"event {event.event_id} (id {event.id} of {event.table}) is {event.state};"
                f" {action.name} is for events that are {allowed}; nothing was changed",
                hint=_HINTS.get(event.state, "`cdc-outbox events show` tells more of it"),
            )


_HINTS = {
    State.sent: "a sent event is published again by: UPDATE … SET status = 0 WHERE event_id = '…' AND status = 2",
    State.sending: "it is with the relay or with Kafka right now; look again in a moment",
    State.pending: "the relay is about to publish it; `cdc-outbox status` says whether one leads",
    State.parked: "it waits behind an earlier event of its aggregate, for its topic or for its time; it needs no retry",
}


def apply(settings: Settings, action: Action, chosen: Selection, reason: str, on_progress: OnProgress) -> Done:
    """Do it to these events, at most 1,000 in a transaction; what has changed meanwhile is left as it is."""
    changed = locked = seen = 0
    with command_session(settings) as session:
        for name, part in chosen.rows.items():
            table = EventRows(session, name)
            left: Sequence[Row] = part
            for attempt in range(_ROUNDS):
                missed: list[Row] = []
                for batch in batches(left):
                    done = _change(table, action, batch, _error(action, reason))
                    changed += len(done)
                    missed += [row for row in batch if row not in done]
                    seen += len(batch) if attempt == 0 else 0
                    on_progress(seen, len(chosen))
                left = _still(table, action, missed)
                if not left:
                    break
            locked += len(left)
        led = lock_owner(session, settings) is not None
    return Done(changed, locked, len(chosen) - changed - locked, led)


def _change(table: EventRows, action: Action, batch: Sequence[Row], error: str | None) -> set[Row]:
    try:
        return table.change(action.change, action.states, batch, error)
    except MySQLError as failure:
        if action is PURGE and error_code(failure) == 1142:
            raise Refused(
                f"this account may not delete rows of {table.name}; the relay itself never needs to",
                hint=f"GRANT DELETE ON {table.name.quoted} TO …;   or run this command with another account"
                " (CDC_OUTBOX_MYSQL__USER, CDC_OUTBOX_MYSQL__PASSWORD)",
            ) from failure
        if not is_retriable(failure):
            raise
        return set()


def _still(table: EventRows, action: Action, rows: Sequence[Row]) -> list[Row]:
    """Those that are as they were: locked by somebody else."""
    found: list[Row] = []
    for batch in batches(rows):
        now = {row.key: row.state for row in table.by_id([id for id, _ in batch])}
        found += [row for row in batch if now.get(row) in action.states]
    return found


def _error(action: Action, reason: str) -> str | None:
    """What last_error says from now on; of a retry without reason it stays."""
    if action is SKIP:
        return f"{SKIPPED}: {reason}" if reason else f"{SKIPPED} by a person"
    return f"retried: {reason}" if reason else None


def _can_filter(rows: EventRows, chosen: Filter) -> None:
    if chosen.error is not None and not rows.has_last_error:
        raise Refused(
            f"{rows.name} has no column last_error, so --error cannot look into it",
            hint=f"ALTER TABLE {rows.name.quoted} ADD COLUMN last_error VARCHAR(512) NULL;",
        )
