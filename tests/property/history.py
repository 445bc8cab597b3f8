"""One history: what an application, people, the server, the broker, processes and threads do, act after act.

An act is a name and a seed, so that a history can be repeated, and shortened by leaving acts out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cdc_outbox.mysql.checkpoint import reset, set_paused
from tests.property.broker import PARTITIONS
from tests.property.database import CHECKPOINT, Row
from tests.property.simulation import Relay, World

AGGREGATES = ("a", "b", "c")
SETTLES_WITHIN = 600.0
"""Seconds in which everything must be sent or dead once all is well again: a chain of failures takes its retries."""

RESTS_AFTER = 3.0
RESTS_AFTER_TRAFFIC = 10.0
"""Seconds after which a relay with nothing to do must have stopped writing; other tables' traffic may move the position
once more."""

WORK = ("commit", "commit", "all_work", "all_work", "all_work", "threads_run", "threads_run", "records_land", "all_run")
"""What happens in every history."""

TROUBLE = (
    "commit_invisible",
    "commit_not_shown",
    "commit_delayed",
    "commit_overlapping",
    "other_traffic",
    "lock_a_row",
    "another_worker_claims",
    "another_worker_has_sent",
    "set_back_to_0",
    "retry",
    "skip",
    "delete",
    "time_passes",
    "mysql_restarts",
    "mysql_goes",
    "mysql_is_demoted",
    "a_connection_is_killed",
    "the_leader_lock_is_lost",
    "the_binlog_is_purged",
    "the_checkpoint_is_lost",
    "checkpoint_reset",
    "pause",
    "broker_goes",
    "nobody_knows_what_landed",
    "refuse_after_all_checks",
    "an_unlisted_error",
    "the_topic_goes",
    "a_partition_goes",
    "start",
    "kill_9",
    "freeze",
    "ask_to_stop",
    "the_next_commit_fails",
)
"""What may happen. Each history has a few kinds of it, often: all at once would leave the relay no time to do wrong."""

MORE_TROUBLE = ("mysql_fails_over", "mysql_fails_over", "commit_still_owned")
"""Chosen apart from TROUBLE."""
NEEDS_ROWS = {
    "commit_invisible",
    "commit_not_shown",
    "commit_delayed",
    "another_worker_claims",
    "another_worker_has_sent",
    "set_back_to_0",
    "delete",
    "the_binlog_is_purged",
    "the_checkpoint_is_lost",
    "checkpoint_reset",
}
"""What `rows: transient` cannot live through, or what there are no rows for."""

Act = tuple[str, int]


@dataclass(frozen=True)
class Plan:
    """A history before it happens. seed: of the settings and of what is there before the first start.

    settings: of World, which the seed does not choose then.
    """

    seed: int
    acts: Sequence[Act]
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: bool = False
    """A replica is read in the server's place."""

    @staticmethod
    def made_of(seed: int, length: int, *, source: bool = False, transient: bool = False) -> Plan:
        """The history of a seed: the same each time."""
        chance = random.Random(seed)
        trouble = [one for one in TROUBLE if one not in NEEDS_ROWS] if transient else TROUBLE
        kinds = chance.sample(trouble, chance.randint(0, 6))
        apart = random.Random(f"more of {seed}")
        if not transient:
            kinds += apart.sample(MORE_TROUBLE, apart.choice((0, 0, 0, 0, 1, 1, 2)))
        names = [chance.choice(kinds if kinds and chance.random() < 0.3 else WORK) for _ in range(length)]
        settings = {"transient": True, "claim": "leader", "position_in_file": False} if transient else {}
        return Plan(seed, [(name, chance.randrange(2**32)) for name in names], settings, source=source)


def _one_in_eight(this: str, chance: random.Random, otherwise: str) -> str:
    return this if chance.random() < 1 / 8 else otherwise


class Broken(AssertionError):
    """A promise does not hold."""


class History:
    """Up to three relays of one name on one table. `run` raises Broken."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        chance, apart = random.Random(plan.seed), random.Random(f"settings of {plan.seed}")
        chosen: dict[str, Any] = {
            "claim": chance.choice(("leader", "row")),
            "ordering": _one_in_eight("none", apart, chance.choice(("aggregate", "aggregate", "strict"))),
            "position_in_file": apart.random() < 0.2,
            "gtids": chance.random() < 0.5,
            "max_in_flight": chance.choice((2, 3, 8, 40)),
            "batch": chance.choice((1, 2, 5, 50)),
            "read_at_once": chance.choice((1, 3, 20)),
            "max_rate": chance.choice((None, None, None, 3.0, 50.0)),
            "rows_are_locked": any(name == "lock_a_row" for name, _ in plan.acts),
        }
        if plan.source:
            chosen |= {"gtids": True, "replication": random.Random(plan.seed)}
        self.world = World(**{**chosen, **plan.settings})
        self.refusing = chance.choice((0.0, 0.1, 0.5))
        """Share of events that are refused at first, or for good."""
        self.ids = 0

    def run(self) -> int:
        """Steps that the relay's threads took."""
        with self.world.running():
            chance = random.Random(self.plan.seed)
            if self.world.database.transient:
                self._first_start()
            for _ in range(chance.choice((0, 0, 1, 3))):
                self.commit(chance)
            self.world.start()
            for name, seed in self.plan.acts:
                getattr(self, name)(random.Random(seed))
                self._look()
            self._all_is_well_again()
            self._settle()
            self._rest()
        return self.world.steps

    def _first_start(self) -> None:
        """What is committed before it is nobody's."""
        self.world.start()
        while self.world.database.checkpoint is None or self.world.database.checkpoint.binlog_pos is None:
            self.world.round()

    def _look(self) -> None:
        if self.world.judge.broken:
            raise Broken("\n".join(self.world.judge.broken))

    # -- work -------------------------------------------------------------------------------------------------

    def _rows(self, chance: random.Random) -> list[Row]:
        rows = []
        for _ in range(chance.choice((1, 1, 2, 3, 6))):
            self.ids += 1
            event_id = f"e{self.ids}"
            rows.append(Row(self.ids, event_id, chance.choice(AGGREGATES), max_retries=chance.choice((0, 1, 2))))
            if chance.random() < self.refusing:
                self.world.broker.refused[event_id] = chance.choice((1, 1, 2, 3))
        return rows

    def _insert(self, rows: list[Row], *, shown: bool = True, visible: bool = True) -> None:
        self.world.judge.committed(rows, unordered=not shown)
        self.world.database.insert(rows, shown=shown, visible=visible)

    def commit(self, chance: random.Random) -> None:
        self._insert(self._rows(chance))

    def _one_thread_runs(self, chance: random.Random) -> None:
        runnable = self.world.scheduler.runnable()
        if runnable:
            task = chance.choice(runnable)
            for _ in range(chance.choice((1, 1, 1, 3, 8))):
                if task.runnable(self.world.scheduler.now):
                    self.world.step(task)
                    self._look()

    def threads_run(self, chance: random.Random) -> None:
        """In any order; nothing lands, and no time passes."""
        for _ in range(chance.randint(1, 60)):
            self._one_thread_runs(chance)

    def all_work(self, chance: random.Random) -> None:
        """Threads run in any order, and records land and are acknowledged in between."""
        for _ in range(chance.randint(1, 60)):
            self._one_thread_runs(chance)
            if chance.random() < 0.5:
                self.records_land(chance)
            self.world.broker.answer(chance.choice((0, 0, 1, 3)))
            self.world.advance(0.01)

    def records_land(self, chance: random.Random) -> None:
        """Those of one key, or the first of all."""
        key = chance.choice((None, *AGGREGATES))
        self.world.broker.land(chance.randint(1, 4), None if key is None else key.encode())

    def all_run(self, chance: random.Random) -> None:
        for _ in range(chance.randint(1, 40)):
            self.world.round()
            self._look()

    # -- other commits ----------------------------------------------------------------------------------------

    def commit_invisible(self, chance: random.Random) -> None:
        """In the binlog before a SELECT shows it; or what was so becomes visible."""
        if chance.random() < 0.5:
            self._insert(self._rows(chance), visible=False)
        else:
            self.world.database.become_visible()

    def commit_not_shown(self, chance: random.Random) -> None:
        self._insert(self._rows(chance), shown=False)

    def commit_still_owned(self, chance: random.Random) -> None:
        """Visible before gtid_executed holds it; or it does now."""
        if chance.random() < 0.5:
            self.world.judge.committed(rows := self._rows(chance))
            self.world.database.insert(rows, owned=True)
        else:
            self.world.database.owned.clear()

    def commit_delayed(self, chance: random.Random) -> None:
        due = self.world.database.now + chance.choice((0, 1, 4))
        self._insert([replace(row, next_retry_at=due) for row in self._rows(chance)])

    def commit_overlapping(self, chance: random.Random) -> None:
        """The one that took its ids first commits last."""
        first, second = self._rows(chance), self._rows(chance)
        self._insert(second)
        self._insert(first)

    def other_traffic(self, chance: random.Random) -> None:
        self.world.database.traffic(chance.choice((1000, 70 << 20)))

    def lock_a_row(self, chance: random.Random) -> None:
        database = self.world.database
        row = self._pick(chance)
        if database.locked and chance.random() < 0.7:
            database.locked.clear()
        elif row is not None and database.free(row.id):
            database.locked.add(row.id)

    # -- people and other workers -----------------------------------------------------------------------------

    def _pick(self, chance: random.Random) -> Row | None:
        rows = list(self.world.database.rows.values())
        return chance.choice(rows) if rows else None

    def _change(self, row: Row, *, unordered: bool, **columns: int | None) -> bool:
        """An UPDATE by somebody else; where the row is locked it would wait and is left out."""
        database = self.world.database
        if not database.free(row.id):
            return False
        database.rows[row.id] = replace(row, updated_at=database.now, **columns)  # type: ignore[arg-type]
        fact = self.world.judge.facts[row.event_id]
        fact.touched, fact.handed_by = True, None
        fact.unordered = fact.unordered or unordered
        return True

    def another_worker_claims(self, chance: random.Random) -> None:
        row = self._pick(chance)
        claim = self.world.settings.outbox.claim
        if claim == "row" and row is not None and row.status == 0 and row.next_retry_at is None:
            self._change(row, status=1, unordered=True)

    def another_worker_has_sent(self, chance: random.Random) -> None:
        row = self._pick(chance)
        if row is None or row.status != 1:
            return
        fact = self.world.judge.facts[row.event_id]
        if fact.unordered and self._change(row, status=2, unordered=True):
            fact.published_elsewhere = True

    def set_back_to_0(self, chance: random.Random) -> None:
        row = self._pick(chance)
        if row is not None:
            self._change(row, unordered=True, status=0, retry_count=0, next_retry_at=None)

    def retry(self, chance: random.Random) -> None:
        """What `events retry` does."""
        row, now = self._pick(chance), self.world.database.now
        if row is not None and row.status == 3:
            self._change(row, unordered=row.dead, retry_count=0, next_retry_at=now)

    def skip(self, chance: random.Random) -> None:
        """What `events skip` does."""
        row, now = self._pick(chance), self.world.database.now
        if row is not None and row.status == 3:
            retries = row.max_retries + 1
            if self._change(row, unordered=row.dead, retry_count=retries, next_retry_at=now):
                self.world.judge.facts[row.event_id].skipped = True

    def delete(self, chance: random.Random) -> None:
        row = self._pick(chance)
        if row is not None and self._change(row, unordered=True):
            del self.world.database.rows[row.id]

    # -- the server and time ----------------------------------------------------------------------------------

    def time_passes(self, chance: random.Random) -> None:
        """Nothing runs meanwhile."""
        self.world.advance(chance.choice((0.05, 0.3, 1.1, 3.5)))

    def mysql_restarts(self, chance: random.Random) -> None:
        self.world.database.end_sessions()

    def mysql_goes(self, chance: random.Random) -> None:
        """Or comes back."""
        self.world.database.away = not self.world.database.away
        if self.world.database.away:
            self.world.database.end_sessions()

    def mysql_is_demoted(self, chance: random.Random) -> None:
        """Or promoted."""
        self.world.database.read_only = not self.world.database.read_only

    def mysql_fails_over(self, chance: random.Random) -> None:
        """To a replica that has everything, or stopped at some moment before; that moment comes first."""
        database = self.world.database
        if database.replica is None or chance.random() < 0.3:
            database.replicate()
        if chance.random() < 0.6 and database.fail_over() is not None:
            self.world.judge.failed_over(database.rows)

    def a_connection_is_killed(self, chance: random.Random) -> None:
        if self.world.database.sessions:
            chance.choice(self.world.database.sessions).end()

    def the_leader_lock_is_lost(self, chance: random.Random) -> None:
        """Somebody kills the connection that holds it; the relay lives on."""
        for session in list(self.world.database.named.values()):
            session.end()

    def the_binlog_is_purged(self, chance: random.Random) -> None:
        self.world.database.purge()

    def the_checkpoint_is_lost(self, chance: random.Random) -> None:
        database = self.world.database
        if database.holder(CHECKPOINT) is None:
            database.checkpoint = None
            self.world.judge.checkpoint_lost()

    def checkpoint_reset(self, chance: random.Random) -> None:
        """The command refuses while a relay leads."""
        database = self.world.database
        if not (database.named or database.away or database.holder(CHECKPOINT)):
            session = database.connect(None, 60.0)
            reset(session, self.world.settings, "now")  # type: ignore[arg-type]
            session.close()

    def pause(self, chance: random.Random) -> None:
        """Or resume."""
        self._pause(chance.random() < 0.5)

    def _pause(self, paused: bool) -> None:
        database = self.world.database
        if not database.away and database.holder(CHECKPOINT) is None:
            session = database.connect(None, 60.0)
            set_paused(session, self.world.settings.name, paused)  # type: ignore[arg-type]
            session.close()

    # -- the broker -------------------------------------------------------------------------------------------

    def broker_goes(self, chance: random.Random) -> None:
        """Or comes back."""
        self.world.broker.away = not self.world.broker.away

    def nobody_knows_what_landed(self, chance: random.Random) -> None:
        self.world.broker.lose_answers()
        self.world.broker.answer(1000)

    def refuse_after_all_checks(self, chance: random.Random) -> None:
        if self.ids:
            self.world.broker.refused_late[f"e{chance.randint(1, self.ids + 2)}"] = chance.choice((1, 2))

    def an_unlisted_error(self, chance: random.Random) -> None:
        if self.ids:
            self.world.broker.unlisted[f"e{chance.randint(1, self.ids + 2)}"] = chance.choice((1, 2, 4, 5))

    def the_topic_goes(self, chance: random.Random) -> None:
        """Or is there again."""
        self.world.broker.topic_missing = not self.world.broker.topic_missing

    def a_partition_goes(self, chance: random.Random) -> None:
        """Or is back."""
        broker = self.world.broker
        broker.partition_away = None if broker.partition_away is not None else chance.randrange(1, PARTITIONS)
        broker.leader_lost = chance.random() < 0.5

    # -- processes --------------------------------------------------------------------------------------------

    def _on_a_relay(self, chance: random.Random, act: Callable[[Relay], object]) -> None:
        alive = self.world.alive()
        if alive:
            act(chance.choice(alive))

    def start(self, chance: random.Random) -> None:
        if len(self.world.alive()) < 3:
            self.world.start()

    def kill_9(self, chance: random.Random) -> None:
        """And now and then another one is started in its place."""
        self._on_a_relay(chance, self.world.kill)
        if chance.random() < 0.7:
            self.start(chance)

    def freeze(self, chance: random.Random) -> None:
        """Or wake."""
        self._on_a_relay(chance, lambda relay: setattr(relay, "frozen", not relay.frozen))

    def ask_to_stop(self, chance: random.Random) -> None:
        self._on_a_relay(chance, Relay.request_stop)
        self.start(chance)

    def the_next_commit_fails(self, chance: random.Random) -> None:
        fault = chance.choice(("lost", "answer lost"))
        self._on_a_relay(chance, lambda relay: setattr(relay, "commit_fault", fault))

    # -- the end ----------------------------------------------------------------------------------------------

    def _all_is_well_again(self) -> None:
        database, broker = self.world.database, self.world.broker
        database.away = database.read_only = broker.away = False
        broker.topic_missing = False
        broker.partition_away = None
        database.locked.clear()
        while database.unseen:
            database.become_visible()
        database.owned.clear()
        self.world.source_keeps_up = True
        for relay in self.world.relays:
            relay.frozen = False
            relay.commit_fault = None
        for session in list(database.sessions):
            if database.holder(CHECKPOINT) is session:
                session.end()
        self._pause(False)
        self.world.start()

    def _settle(self) -> None:
        until = self.world.scheduler.now + SETTLES_WITHIN
        while self.world.scheduler.now < until:
            if self._is_settled() and not self.world.broker.wire:
                break
            self.world.round()
            self._look()
        self.world.judge.check_complete()
        self._look()

    def _is_settled(self) -> bool:
        rows = self.world.database.rows
        if not self.world.database.transient:
            return all(row.settled for row in rows.values())
        facts = self.world.judge.facts.values()
        return all(rows[one.row.id].settled if one.row.id in rows else one.landed for one in facts)

    def _rest(self) -> None:
        """P8: with nothing to do, nothing is written."""
        traffic = any(entry.traffic for entry in self.world.database.binlog)
        until = self.world.scheduler.now + (RESTS_AFTER_TRAFFIC if traffic else RESTS_AFTER)
        while self.world.scheduler.now < until:
            self.world.round()
        written = self.world.judge.commits
        while self.world.scheduler.now < until + 5.0:
            self.world.round()
            self._look()
        if self.world.judge.commits != written:
            raise Broken("P8: an idle relay wrote")


def what_breaks(plan: Plan) -> str | None:
    try:
        History(plan).run()
    except Broken as broken:
        return str(broken)
    return None


def shortened(plan: Plan, tries: int = 300) -> Plan:
    """A history with fewer acts that still breaks something."""
    size = max(1, len(plan.acts) // 2)
    while tries > 0:
        at = 0
        while at < len(plan.acts) and tries > 0:
            shorter = replace(plan, acts=[*plan.acts[:at], *plan.acts[at + size :]])
            tries -= 1
            if what_breaks(shorter) is not None:
                plan = shorter
            else:
                at += size
        if size == 1:
            break
        size //= 2
    return plan
