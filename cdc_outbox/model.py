"""The words everything else is written in: Status, State, TableName, Event, Transaction, Position."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from cdc_outbox.gtid import GtidRange, GtidSet


class Status(IntEnum):
    """The `status` column of an outbox row."""

    PENDING = 0
    SENDING = 1
    SENT = 2
    FAILED = 3


class State(StrEnum):
    """What a row says, in one word: its status, and whether next_retry_at is set."""

    pending = "pending"
    sending = "sending"
    parked = "parked"
    failed = "failed"
    dead = "dead"
    sent = "sent"


SKIPPED = "skipped"
"""error_class of what a person gave up, and what last_error of such a row begins with."""


class TableName(NamedTuple):
    """A table with its database, as the server spells them."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def quoted(self) -> str:
        """`database`.`name`, safe to stand in SQL."""
        return ".".join(f"`{part.replace('`', '``')}`" for part in self)


Aggregate = tuple[TableName, str, str]
"""(table, aggregate_type, aggregate_id); compared as they are, case and trailing blanks included."""


@dataclass(slots=True, eq=False)
class Event:
    """One outbox row as it is to be published; identity is the object, a row is named by `key`.

    payload      value as UTF-8 text, exactly `CAST(payload AS CHAR)`; None is SQL NULL
    parked       next_retry_at was set when the row was read
    committed_at original commit time in ms since the epoch, None for rows found by SQL
    created_at   the row's created_at in ms since the epoch (session time zone), None where unknown
    columns      further mapped columns by name, text or None
    incomplete   the row must be read from the table by id before it can be published
    """

    table: TableName
    id: int
    event_id: str
    aggregate_type: str
    aggregate_id: str
    event_type: str
    payload: bytes | None
    status: int = 0
    retry_count: int = 0
    max_retries: int = 3
    parked: bool = False
    committed_at: int | None = None
    created_at: int | None = None
    columns: dict[str, str | None] | None = None
    incomplete: bool = False

    @property
    def aggregate(self) -> Aggregate:
        return (self.table, self.aggregate_type, self.aggregate_id)

    @property
    def key(self) -> tuple[TableName, int, str]:
        """What names a row: ids alone come back after TRUNCATE or a restore."""
        return (self.table, self.id, self.event_id)

    @property
    def skipped(self) -> bool:
        """A person gave it up: it gets its dead letter without being published."""
        return self.retry_count > self.max_retries

    @property
    def attempts(self) -> int:
        """How often it has been tried when it dies, the first time included; of a skipped one the most it can be."""
        return min(self.retry_count, self.max_retries) + (not self.skipped)

    @property
    def size(self) -> int:
        """Bytes that this event is counted with against max_in_flight_bytes."""
        return 256 + len(self.payload or b"")


@dataclass(slots=True, eq=False)
class Transaction:
    """A stretch of the binlog that ends where reading may resume.

    events     inserts into our tables, in binlog order; none for other traffic
    end        (file, offset) after its last event; None: a chunk, more of this transaction follows
    gtids      the GTIDs that end with it (a stretch without events may cover many transactions)
    traffic    bytes of other tables' traffic, which alone make a checkpoint worth writing
    rotated    a new binlog file begins here
    barrier    the statement (TRUNCATE, DROP, RENAME … of one of our tables) before which everything is settled
    unsettled, committed_at
               kept by the ledger once it has taken the events: how many are not settled, their commit time in ms
    """

    events: list[Event]
    end: tuple[str, int] | None
    gtids: list[GtidRange] = field(default_factory=list)
    traffic: int = 0
    rotated: bool = False
    barrier: str | None = None
    unsettled: int = 0
    committed_at: int | None = None

    @property
    def quiet(self) -> bool:
        """Nothing in it but other tables' traffic."""
        return not self.events and self.end is not None and self.barrier is None

    def absorb(self, following: Transaction) -> None:
        """Reach to the end of the one that follows, which has no events; this one has none, or they are settled."""
        self.end = following.end
        self.gtids = list(GtidSet([*self.gtids, *following.gtids]))
        self.traffic += following.traffic
        self.rotated = self.rotated or following.rotated


_FILE = re.compile(r"^(.*?)(\d+)$")


def binlog_file_order(name: str) -> tuple[str, int]:
    """Sort key of a binlog file name: `binlog.1000000` comes after `binlog.999999`."""
    found = _FILE.match(name)
    return (found[1], int(found[2])) if found else (name, -1)


@dataclass(frozen=True)
class Position:
    """A place between two transactions. With gtid_set, the set alone is the position; file and offset inform."""

    file: str = ""
    offset: int = 0
    gtid_set: GtidSet | None = None

    def reached(self, target: Position) -> bool:
        """True when everything before `target` lies before this position too (same server, same mode)."""
        if target.gtid_set is not None:
            return self.gtid_set is not None and target.gtid_set.issubset(self.gtid_set)
        return (binlog_file_order(self.file), self.offset) >= (binlog_file_order(target.file), target.offset)

    def past(self, transactions: Iterable[Transaction]) -> Position:
        """The place behind these transactions. A GTID set is moved in place: copy the position first to keep it."""
        end = None
        source, first, last = "", 1, 0  # GTIDs that follow each other, not added yet
        gtids = self.gtid_set
        for transaction in transactions:
            if transaction.end is None:
                continue
            end = transaction.end
            if gtids is None:
                continue
            for one in transaction.gtids:
                if one[0] == source and one[1] == last + 1:
                    last = one[2]
                    continue
                if last:
                    gtids.add(GtidRange(source, first, last))
                source, first, last = one
        if gtids is not None and last:
            gtids.add(GtidRange(source, first, last))
        return self if end is None else Position(*end, gtids)

    def copy(self) -> Position:
        return Position(self.file, self.offset, None if self.gtid_set is None else self.gtid_set.copy())

    def __str__(self) -> str:
        return str(self.gtid_set) if self.gtid_set is not None else f"{self.file}:{self.offset}"
