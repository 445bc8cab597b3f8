"""The ledger of what is in flight: who holds each event, which aggregates are blocked, where reading may resume.

Pure: no I/O, no clock. One lock; the relay thread admits and decides, the settler takes outcomes and reports them
written, the poller queues rows and asks about blocked aggregates. A rebuild throws the whole ledger away.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import takewhile
from typing import Literal

from cdc_outbox.errors import RecordRefused
from cdc_outbox.gtid import GtidSet
from cdc_outbox.model import Aggregate, Event, Position, TableName, Transaction

RowKey = tuple[TableName, int, str]

COMPACT = 10_000
"""Transactions in the ledger from which on settled ones that follow each other become one."""


class Stage(IntEnum):
    """Where an envelope stands. From ACKED on the settler owes the row a write."""

    READ = 0  # admitted by the tail, not decided yet
    QUEUED = 1  # claimed by the poller, waits for the relay thread
    WAITING = 2  # its aggregate is about to be free: waits in memory
    HANDED = 3  # given to the Kafka client
    DYING = 4  # its dead letter is with the Kafka client
    ACKED = 5  # owed: status 2
    REFUSED = 6  # owed: status 3 and the next retry
    DEAD = 7  # owed: status 3 without a next retry
    PARKING = 8  # owed: next_retry_at at status 0
    PUT_BACK = 9  # owed: status 3, due now, no retry spent
    SETTLED = 10


class Block:
    """Why an aggregate's new events may not go: something earlier of it is failed, parked or not yet written."""

    __slots__ = ("draining", "refusals", "touched", "unwritten", "waiting")

    def __init__(self) -> None:
        self.touched = 0  # number of the poller's pass during which it was last parked, refused or found blocked
        self.refusals = 0  # counts up with every refusal or wait for a topic: what was queued before one is put back
        self.unwritten = 0  # envelopes of it that the poller holds or whose outcome is not written
        self.draining = False  # few rows are left: new tail events wait in memory for the pass that frees it
        self.waiting: list[Envelope] = []


class Envelope:
    """One event on its way, and what the settler must write of it. Identity is the object."""

    # Class attributes as defaults: most envelopes never set them.
    sending = False
    """The row says 1."""
    contended = False
    """Its row was locked by somebody else."""
    overdue = False
    """It has waited for its topic as long as all its retries together would have."""
    alone = False
    """It goes to the client by itself: what it was sent with was refused, or it is suspected."""
    block: Block | None = None
    """Set once it counts in block.unwritten."""
    refusals = 0
    """block.refusals when the poller queued it."""
    error: RecordRefused | None = None
    reason = ""
    """Why a person gave it up, as its row says."""
    retry_in = 0
    """Seconds until the next retry."""
    handed_at = 0.0
    """When it was given to the Kafka client, by the relay's monotonic clock."""
    outcome = Stage.READ
    """The stage it was settled from."""

    def __init__(self, event: Event, transaction: Transaction | None, stage: Stage) -> None:
        self.event = event
        self.size = event.size  # what it took of the budget; the event may be re-read larger
        self.transaction = transaction
        self.stage = stage

    def load(self, event: Event) -> None:
        """The same row with its payload."""
        self.event = event
        self.size = event.size


@dataclass(frozen=True)
class Progress:
    """What writing a batch would settle: the first `transactions` of the ledger, up to `position`."""

    position: Position
    transactions: int


class InFlight:
    """The ledger. start: the resumable position that reading begins with."""

    def __init__(
        self,
        start: Position,
        *,
        ordered: bool = True,
        waiting_room: int = 1000,
    ) -> None:
        """ordered: False with `ordering: none`, nothing is ever blocked. waiting_room: events that may wait in
        memory for their aggregate."""
        self._lock = threading.RLock()
        self.ordered = ordered
        self._waiting_room = waiting_room
        self._waiting = 0
        self._passes = 0
        self.on_outcome: Callable[[], None] = lambda: None
        """Called, with the lock held, whenever the settler has work."""
        self._open: dict[RowKey, Envelope] = {}
        self._transactions: deque[Transaction] = deque()
        self._proposed = 0
        """So many of them the settler is writing a position for."""
        self._compact_at = COMPACT
        self._outcomes: deque[Envelope] = deque()
        self._blocks: dict[Aggregate, Block] = {}
        self._resumable = start
        self._streamed = start.copy()
        self.traffic = 0
        """Bytes of other tables' traffic since the position was last written."""
        self.rotated = False
        self.reading = False
        """False during a bootstrap sweep: until it is over no position may be written."""
        self._start_written = False
        self.settled = 0
        """Events whose outcome was written."""
        self._unmarked_since = math.inf
        """Nothing that is out and not marked 1 was handed over before: most looks for it end here."""
        self.held_by_poller = 0
        """Rows in flight that the poller brought."""

    # -- the tail ---------------------------------------------------------------------------------------------

    def admit(self, transactions: Sequence[Transaction]) -> list[Envelope]:
        """Enter what the reader brought, in stream order; gives the envelopes to decide about.

        An event that is here already (the poller was first) is passed over.
        """
        with self._lock:
            admitted: list[Envelope] = []
            opened = self._open
            for transaction in transactions:
                unsettled = 0
                for event in transaction.events:
                    key = (event.table, event.id, event.event_id)
                    if key not in opened:
                        envelope = Envelope(event, transaction, Stage.READ)
                        opened[key] = envelope
                        admitted.append(envelope)
                        unsettled += 1
                transaction.unsettled = unsettled
                if transaction.events:
                    transaction.committed_at = transaction.events[0].committed_at
                    transaction.events = []  # the envelopes keep them; a settled one must not be kept by its position
                self._enter(transaction)
                self.traffic += transaction.traffic
                self.rotated = self.rotated or transaction.rotated
            self._streamed = self._streamed.past(transactions)
            return admitted

    def _enter(self, transaction: Transaction) -> None:
        """Behind what is settled already, a stretch without events needs no entry of its own: while the first event
        in flight is held, other tables' traffic must not fill the memory. What a position is being written for does
        not grow any more: it leaves with that position, which knows nothing of what came since."""
        last = self._transactions[-1] if len(self._transactions) > self._proposed else None
        quiet = not transaction.unsettled and transaction.end is not None
        if quiet and last is not None and not last.unsettled and last.end is not None:
            last.absorb(transaction)
        else:
            self._transactions.append(transaction)

    def skip(self, envelope: Envelope) -> None:
        """It is not ours to publish: nothing is owed."""
        self.settle_rows([envelope])

    def blocks(self, event: Event) -> Block | None:
        """The block in this event's way, if any."""
        return self._blocks.get((event.table, event.aggregate_type, event.aggregate_id)) if self._blocks else None

    def hand(self, envelopes: list[Envelope], now: float) -> None:
        """They are with the Kafka client from here on. now: the caller's monotonic clock, in seconds."""
        with self._lock:
            handed = Stage.HANDED
            self._unmarked_since = min(self._unmarked_since, now)
            for envelope in envelopes:
                envelope.stage = handed
                envelope.handed_at = now

    def acknowledge(self, envelopes: Iterable[Envelope]) -> None:
        """The broker has them. A dead letter's acknowledgement makes its row dead."""
        with self._lock:
            handed, acked, owe = Stage.HANDED, Stage.ACKED, self._outcomes.append
            for envelope in envelopes:
                if envelope.stage is handed:
                    envelope.stage = acked
                    owe(envelope)
                elif envelope.stage is Stage.DYING:
                    self._owe(envelope, Stage.DEAD)
            self.on_outcome()

    def wait(self, envelope: Envelope) -> None:
        """Keep an event in memory, and its aggregate's later ones behind it, until a pass finds nothing in its way."""
        with self._lock:
            block = self._blocks[envelope.event.aggregate] = self._block(envelope.event.aggregate)
            block.draining = True
            self._keep_waiting(envelope, block)

    def _keep_waiting(self, envelope: Envelope, block: Block) -> None:
        envelope.stage = Stage.WAITING
        block.waiting.append(envelope)
        self._waiting += 1

    def wait_or_park(self, envelope: Envelope, block: Block) -> Stage:
        """A tail event behind a block: parked by a write, or kept in memory while the block is about to go."""
        with self._lock:
            if block.draining and self._waiting < self._waiting_room:
                self._keep_waiting(envelope, block)
            else:
                self._park(envelope, block)
            return envelope.stage

    def _park(self, envelope: Envelope, block: Block) -> None:
        block.touched = self._passes
        self._count(envelope, block)
        self._owe(envelope, Stage.PARKING)

    def take_back(self, envelopes: Iterable[Envelope]) -> int:
        """They were refused by the broker and are to be sent again; gives how many events have overtaken them so."""
        with self._lock:
            first: dict[Aggregate, int] = {}
            for envelope in envelopes:
                envelope.stage = Stage.QUEUED if envelope.transaction is None else Stage.READ
                event = envelope.event
                first[event.aggregate] = min(event.id, first.get(event.aggregate, event.id))
            return sum(
                envelope.event.id > first.get(envelope.event.aggregate, envelope.event.id)
                for envelope in self._open.values()
                if envelope.stage in (Stage.HANDED, Stage.ACKED)
            )

    # -- failures ---------------------------------------------------------------------------------------------

    def refuse(self, envelope: Envelope, error: RecordRefused, retry_in: int | None) -> None:
        """It failed. retry_in: seconds until its next retry; None: retries used up, its dead letter is next."""
        with self._lock:
            envelope.error = error
            self._count(envelope, self._blocked_by_refusal(envelope.event))
            if retry_in is None:
                envelope.stage = Stage.DYING
            else:
                envelope.retry_in = retry_in
                self._owe(envelope, Stage.REFUSED)

    def hold_back(self, envelope: Envelope) -> None:
        """It waits in its row for its topic, and what follows it behind it; no retry is spent."""
        with self._lock:
            block = self._block(envelope.event.aggregate)
            block.refusals += 1
            if envelope.sending:
                self._count(envelope, block)
                self._owe(envelope, Stage.PUT_BACK)
            else:
                self._park(envelope, block)

    def bury(self, envelope: Envelope) -> None:
        """No dead letter can be had for it: the row itself keeps the event."""
        with self._lock:
            self._owe(envelope, Stage.DEAD)

    def put_back(self, envelope: Envelope) -> None:
        """A queued row behind one that was refused meanwhile: due again at once, no retry spent."""
        with self._lock:
            if envelope.block is not None:
                envelope.block.touched = self._passes
            self._owe(envelope, Stage.PUT_BACK)

    def give_up(self, queued: Iterable[Envelope], *, unclaimed: bool) -> None:
        """Nothing more is handed over: what was claimed for it and is not out is put back; `unclaimed`: the rest, too.

        queued: the poller's rows that the relay thread has; others the poller may be claiming at this moment.
        """
        with self._lock:
            for envelope in [*queued, *(one for one in self._open.values() if one.transaction is not None)]:
                if (envelope.sending or unclaimed) and envelope.stage < Stage.HANDED:
                    self.put_back(envelope)

    def _blocked_by_refusal(self, event: Event) -> Block:
        block = self._block(event.aggregate)
        block.refusals += 1
        self._stop_draining(block)
        return block

    def _stop_draining(self, block: Block) -> None:
        block.draining = False
        waiting, block.waiting = block.waiting, []
        self._waiting -= len(waiting)
        for envelope in waiting:
            self._park(envelope, block)

    def _block(self, aggregate: Aggregate) -> Block:
        block = self._blocks.get(aggregate)
        if block is None:
            block = Block()
            if self.ordered:
                self._blocks[aggregate] = block
        block.touched = self._passes
        return block

    def _count(self, envelope: Envelope, block: Block) -> None:
        if envelope.block is None:
            envelope.block = block
            block.unwritten += 1

    def _owe(self, envelope: Envelope, stage: Stage) -> None:
        envelope.stage = stage
        self._outcomes.append(envelope)
        self.on_outcome()

    # -- the poller -------------------------------------------------------------------------------------------

    def block(self, aggregates: Iterable[Aggregate]) -> None:
        """They were found failed, parked or in other hands."""
        with self._lock:
            for aggregate in aggregates:
                self._block(aggregate)

    def holds(self, key: RowKey) -> bool:
        return key in self._open

    def handed_over(self, key: RowKey) -> bool:
        """True when this relay has given the row to its client, or will before anything queued from now on.

        A row that was refused before must be acknowledged first: it is the one likely to be refused again.
        """
        envelope = self._open.get(key)
        if envelope is None:
            return False
        if envelope.event.retry_count:
            return envelope.stage is Stage.ACKED
        return envelope.stage in (Stage.ACKED, Stage.HANDED, Stage.QUEUED)

    def park_if_waiting(self, key: RowKey) -> None:
        """A row that waits in memory stands in the way of one in the table: it is parked, and both are due by id."""
        with self._lock:
            envelope = self._open.get(key)
            if envelope is not None and envelope.stage is Stage.WAITING:
                block = self._blocks.get(envelope.event.aggregate)
                if block is not None:
                    self._stop_draining(block)

    def queue(self, events: Sequence[Event], passable: Callable[[Event], bool]) -> list[Envelope]:
        """Enter the poller's rows that `passable` lets through, in order, as claimed and queued.

        passable is asked under the lock, so that no refusal can come between its answer and the entry.
        """
        with self._lock:
            queued: list[Envelope] = []
            for event in events:
                if event.key in self._open or not passable(event):
                    continue
                envelope = Envelope(event, None, Stage.QUEUED)
                envelope.sending = True
                block = self._block(event.aggregate)
                envelope.refusals = block.refusals
                self._count(envelope, block)
                self._open[event.key] = envelope
                self.held_by_poller += 1
                queued.append(envelope)
            return queued

    def tail_rows(self, aggregates: Collection[Aggregate]) -> list[tuple[Aggregate, tuple[int, str]]]:
        """What the tail brought of these aggregates and is not settled, as (aggregate, (id, event_id))."""
        with self._lock:
            return [
                (envelope.event.aggregate, (envelope.event.id, envelope.event.event_id))
                for envelope in self._open.values()
                if envelope.transaction is not None and envelope.event.aggregate in aggregates
            ]

    def forget(self, envelopes: Iterable[Envelope]) -> None:
        """The claim of queued rows was rolled back: they are not in flight."""
        with self._lock:
            for envelope in envelopes:
                self._close(envelope)

    def held_aggregates(self) -> set[Aggregate]:
        """Aggregates of rows that the poller holds: their next rows come when these are settled."""
        with self._lock:
            return (
                {e.event.aggregate for e in self._open.values() if e.transaction is None}
                if self.held_by_poller
                else set()
            )

    def overtaken(self, envelope: Envelope) -> bool:
        """An earlier row of its aggregate was refused, or has no topic, since the poller queued it."""
        return self.ordered and envelope.block is not None and envelope.block.refusals != envelope.refusals

    def begin_pass(self) -> tuple[int, list[Aggregate]]:
        """(number of this pass, blocked aggregates that may turn out free: all this relay knew of them is written)."""
        with self._lock:
            self._passes += 1
            quiet = [aggregate for aggregate, block in self._blocks.items() if not block.unwritten]
            return self._passes, quiet

    def drain(self, aggregates: Collection[Aggregate]) -> None:
        """These aggregates have few rows left and nothing else in their way; no others."""
        with self._lock:
            for aggregate, block in self._blocks.items():
                if aggregate in aggregates:
                    block.draining = True
                elif block.draining:
                    self._stop_draining(block)

    def release(self, aggregate: Aggregate, number: int) -> list[Envelope]:
        """Free an aggregate that pass `number` found empty, unless something came up since that pass began.

        Later passes may have begun meanwhile: they do not excuse what came up. Gives what waited for it.
        """
        with self._lock:
            block = self._blocks.get(aggregate)
            if block is None or block.touched >= number or block.unwritten:
                return []
            del self._blocks[aggregate]
            self._waiting -= len(block.waiting)
            return block.waiting

    @property
    def blocked(self) -> int:
        return len(self._blocks)

    def blocked_aggregates(self) -> list[Aggregate]:
        with self._lock:
            return list(self._blocks)

    # -- the settler ------------------------------------------------------------------------------------------

    def take_outcomes(self, limit: int) -> list[Envelope]:
        with self._lock:
            return [self._outcomes.popleft() for _ in range(min(limit, len(self._outcomes)))]

    @property
    def owed(self) -> int:
        return len(self._outcomes)

    def slow(self, handed_before: float) -> list[Envelope]:
        """What was handed over before that time, is still out and not marked 1."""
        with self._lock:
            if handed_before < self._unmarked_since:
                return []
            handed = Stage.HANDED
            unmarked = [one for one in self._open.values() if one.stage is handed and not one.sending]
            self._unmarked_since = min((one.handed_at for one in unmarked), default=math.inf)
            return [one for one in unmarked if one.handed_at <= handed_before]

    def undelivered(self) -> list[Envelope]:
        """What waits in memory or is with the Kafka client, dead letters included, in the order it came."""
        with self._lock:
            last = Stage.DYING
            return [envelope for envelope in self._open.values() if envelope.stage <= last]

    def with_the_client(self, counts: Callable[[Aggregate], bool]) -> bool:
        """Whether a dead letter is, or an event of an aggregate that counts."""
        with self._lock:
            handed, dying = Stage.HANDED, Stage.DYING
            return any(
                one.stage is dying or (one.stage is handed and counts(one.event.aggregate))
                for one in self._open.values()
            )

    def propose(self, batch: Sequence[Envelope]) -> Progress:
        """Where reading could resume once `batch` is written. Followed by `settle` or `retract`."""
        with self._lock:
            for envelope in batch:
                if envelope.transaction is not None:
                    envelope.transaction.unsettled -= 1
            settled = list(takewhile(lambda transaction: not transaction.unsettled, self._transactions))
            self._proposed = len(settled)
            return Progress(self._resumable.copy().past(settled), len(settled))

    def retract(self, batch: Sequence[Envelope]) -> None:
        with self._lock:
            self._proposed = 0
            for envelope in batch:
                if envelope.transaction is not None:
                    envelope.transaction.unsettled += 1

    def settle_rows(self, batch: Sequence[Envelope]) -> None:
        """`batch` is committed, without a position."""
        with self._lock:
            self.settled += len(batch)
            for envelope in batch:
                self._close(envelope)
                if envelope.transaction is not None:
                    envelope.transaction.unsettled -= 1

    def settle(self, batch: Sequence[Envelope], progress: Progress) -> None:
        """`batch` and the position of `progress` are committed."""
        with self._lock:
            self.settled += len(batch)
            for envelope in batch:
                self._close(envelope)
            self._proposed = 0
            for _ in range(progress.transactions):
                self.traffic -= self._transactions.popleft().traffic
            self._start_written = self._start_written or self.reading
            if progress.transactions:
                self._resumable = progress.position
                self.rotated = self.rotated and any(transaction.rotated for transaction in self._transactions)
            if len(self._transactions) >= self._compact_at:
                self._compact()

    def _compact(self) -> None:
        """While the first event in flight stays there, what is settled behind it must not fill the memory."""
        kept: deque[Transaction] = deque()
        for transaction in self._transactions:
            last = kept[-1] if kept else None
            if last is None or last.unsettled or transaction.unsettled or last.end is None or transaction.end is None:
                kept.append(transaction)
            else:
                last.absorb(transaction)
        self._transactions = kept
        self._compact_at = max(COMPACT, 2 * len(kept))

    def _close(self, envelope: Envelope) -> None:
        event = envelope.event
        del self._open[(event.table, event.id, event.event_id)]
        envelope.outcome = envelope.stage
        envelope.stage = Stage.SETTLED
        if envelope.transaction is None:
            self.held_by_poller -= 1
        if envelope.block is not None:
            envelope.block.unwritten -= 1

    @property
    def position_worth_writing(self) -> Literal["no", "in time", "now"]:
        """Whether a position alone is worth a write: never for our own writes, and only where it would move."""
        if not self.reading:
            return "no"
        if not self._start_written:
            return "now"
        if not self._transactions or self._transactions[0].unsettled or not (self.traffic or self.rotated):
            return "no"
        return "now" if self.rotated else "in time"

    # -- positions --------------------------------------------------------------------------------------------

    @property
    def resumable(self) -> Position:
        """End of the last transaction before which everything is settled, as last written."""
        return self._resumable

    def streamed_past(self, target: Position) -> bool:
        """True once everything the binlog holds before `target` has been admitted."""
        with self._lock:
            return self._streamed.reached(target)

    def unreadable(self, gtids: GtidSet) -> None:
        """The server does not send these: nobody need wait for them."""
        with self._lock:
            if self._streamed.gtid_set is not None:
                self._streamed.gtid_set.update(gtids)

    def oldest_commit(self) -> int | None:
        """Commit time, in ms since the epoch, of the first transaction that is not settled."""
        with self._lock:
            return next((t.committed_at for t in self._transactions if t.unsettled), None)

    def __len__(self) -> int:
        return len(self._open)

    def stages(self) -> Counter[Stage]:
        with self._lock:
            return Counter(envelope.stage for envelope in self._open.values())

    def idle(self) -> bool:
        """Nothing in flight."""
        return not self._open

    def unfinished(self) -> int:
        """Events that are with the client, owed a write, or claimed."""
        with self._lock:
            return sum(one.sending or one.stage >= Stage.HANDED for one in self._open.values())
