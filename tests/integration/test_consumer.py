"""IdempotentConsumer on a real MySQL: both modes, crashes, leases, deadlocks, outages, hooks."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import mysql.connector
import pymysql
import pytest
import sqlalchemy
from pymysql.cursors import DictCursor
from sqlalchemy import orm

from cdc_outbox import IdempotentConsumer
from cdc_outbox.app.consumer_attempt import TransactionEnded
from cdc_outbox.app.consumer_retry import AttemptsUsedUp, Failure, Outcome
from cdc_outbox.errors import EventBusy, LeaseLost, NotInTransaction, Refused
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.shop import ConsumerProcess, Shop, in_threads, make_shop
from tests.harness.world import wait_until

MODES: tuple[Literal["transactional", "record_first"], ...] = ("transactional", "record_first")
both_modes = pytest.mark.parametrize("mode", MODES)


def effect(shop: Shop, mode: str, event_id: str) -> Callable[..., str]:
    """A handler that writes one effect, in the way that the mode is for."""

    def handler(*given: Any) -> str:
        if mode == "transactional":
            shop.write(given[0], event_id)
        else:
            shop.act(event_id)
        return f"did {event_id}"

    return handler


class Fails(Exception):
    """What handlers raise here."""


def failing(*_: object) -> None:
    raise Fails("no stock")


# -- once -------------------------------------------------------------------------------------------------------------


@both_modes
def test_an_event_is_processed_once(shop: Shop, mode: str) -> None:
    with shop.consumer(mode=mode) as consumer:
        first = consumer.process("e1", effect(shop, mode, "e1"))
        second = consumer.process("e1", effect(shop, mode, "e1"))
    assert (first.outcome, first.value, first.attempts) == (Outcome.DONE, "did e1", 1)
    assert (second.outcome, second.value) == (Outcome.DUPLICATE, None)
    assert shop.effects() == {"e1": 1}
    assert shop.row("e1") == (1, 1)


@both_modes
def test_groups_know_nothing_of_each_other(shop: Shop, mode: str) -> None:
    for group in ("inventory", "mail", "Mail"):
        shop.consumer(mode=mode, group=group).process("e1", effect(shop, mode, "e1"))
    assert shop.effects() == {"e1": 3}


@both_modes
def test_a_failure_leaves_nothing_behind(shop: Shop, mode: str) -> None:
    consumer = shop.consumer(mode=mode)
    with pytest.raises(Fails):
        consumer.process("e1", failing)
    assert shop.row("e1") is None
    assert consumer.process("e1", effect(shop, mode, "e1")).outcome is Outcome.DONE
    assert shop.row("e1") == (1, 1)


def test_what_a_failed_handler_wrote_is_rolled_back(shop: Shop) -> None:
    def half(connection: Any) -> None:
        shop.write(connection, "e1")
        raise Fails

    with pytest.raises(Fails):
        shop.consumer().process("e1", half)
    assert not shop.effects()


@both_modes
def test_many_consumers_and_one_event_at_once(shop: Shop, mode: str) -> None:
    """Each event comes to five consumers at the same moment, some of which fail: one effect each."""
    consumers = [shop.consumer(mode=mode) for _ in range(5)]
    meet = threading.Barrier(len(consumers))

    def take(consumer: Any, dice: random.Random) -> None:
        for number in range(8):
            meet.wait(60)
            wait_until(lambda event_id=f"e{number}": processed(consumer, dice, event_id), f"e{number} is done", 60)

    def processed(consumer: IdempotentConsumer, dice: random.Random, event_id: str) -> bool:
        try:
            consumer.process(event_id, failing if dice.random() < 0.4 else effect(shop, mode, event_id))
        except (EventBusy, Fails):
            return False
        return True

    in_threads([lambda one=one, seed=seed: take(one, random.Random(seed)) for seed, one in enumerate(consumers)])
    assert shop.effects() == {f"e{number}": 1 for number in range(8)}


@both_modes
def test_a_storm_of_redeliveries(shop: Shop, mode: str) -> None:
    """Every event comes ten times, in any order, on four threads of one consumer."""
    events = [f"e{number % 15}" for number in range(150)]
    with shop.consumer(mode=mode) as consumer:

        def deliver(seed: int) -> list[Outcome]:
            mine = events[seed::4]
            random.Random(seed).shuffle(mine)
            outcomes = []
            deadline = time.monotonic() + 60
            while mine and time.monotonic() < deadline:
                event_id = mine.pop()
                try:
                    outcomes.append(consumer.process(event_id, effect(shop, mode, event_id)).outcome)
                except EventBusy:
                    mine.insert(0, event_id)
            return outcomes

        outcomes = [one for each in in_threads([lambda s=s: deliver(s) for s in range(4)]) for one in each]
    assert shop.effects() == {f"e{number}": 1 for number in range(15)}
    assert (outcomes.count(Outcome.DONE), outcomes.count(Outcome.DUPLICATE)) == (15, 135)


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before", "after"])
def test_killed_in_a_transaction(shop: Shop, point: str) -> None:
    """kill -9 before and after the effect, which is committed with the record: one effect."""
    victim = ConsumerProcess(shop, mode="transactional", events=["e0", "e1"], stop_at={"e1": point})
    victim.wait_for(f"{point} e1")
    victim.kill()
    consumer = shop.consumer(mode="transactional")
    assert consumer.process("e1", effect(shop, "transactional", "e1")).outcome is Outcome.DONE
    assert shop.effects() == {"e0": 1, "e1": 1}


@pytest.mark.parametrize(("point", "times"), [("before", 1), ("after", 2)])
def test_killed_between_record_and_effect(shop: Shop, point: str, times: int) -> None:
    """Recorded, no effect: busy for as long as the lease, then made good. After the effect: that happens again."""
    victim = ConsumerProcess(shop, mode="record_first", lease=2.5, events=["e1"], stop_at={"e1": point})
    victim.wait_for(f"{point} e1")
    victim.kill()
    consumer = shop.consumer(mode="record_first")
    with pytest.raises(EventBusy) as busy:
        consumer.process("e1", effect(shop, "record_first", "e1"))
    assert 0 < busy.value.retry_after <= 2.5

    def again() -> Any:
        try:
            return consumer.process("e1", effect(shop, "record_first", "e1"))
        except EventBusy:
            return None

    done = wait_until(again, "the lease of the killed consumer ends")
    assert (done.outcome, done.attempts) == (Outcome.DONE, 2)
    assert shop.effects() == {"e1": times}


# -- leases -----------------------------------------------------------------------------------------------------------


def held_open(shop: Shop, **options: Any) -> tuple[threading.Event, threading.Event, Callable[[], Any]]:
    """(is in its handler, may go on, run it): a record_first consumer that stops inside its handler."""
    inside, go_on = threading.Event(), threading.Event()
    fails = options.pop("fails", False)

    def slow() -> None:
        inside.set()
        assert go_on.wait(30)
        if fails:
            raise Fails
        shop.act("e1", "slow")

    return inside, go_on, lambda: shop.consumer(mode="record_first", **options).process("e1", slow)


def taken_over(shop: Shop, handler: Callable[[], Any]) -> Any:
    """Process e1 as soon as the lease of whoever has it ends."""

    def again() -> Any:
        try:
            return shop.consumer(mode="record_first").process("e1", handler)
        except EventBusy:
            return None

    return wait_until(again, "the lease ends")


@pytest.mark.parametrize("fails", [False, True])
def test_an_owner_that_was_too_slow_changes_nothing(shop: Shop, fails: bool) -> None:
    inside, go_on, run = held_open(shop, lease=0.4, renew=False, fails=fails)
    with pytest.raises(LeaseLost):
        in_threads([run, lambda: (inside.wait(20), taken_over(shop, lambda: shop.act("e1", "new")), go_on.set())])
    assert shop.row("e1") == (1, 2)
    assert shop.effects()["e1"] == (1 if fails else 2)


def test_a_late_failure_does_not_free_the_event_of_a_third_consumer(shop: Shop) -> None:
    """A's lease ends; B takes the event, fails, forgets it; C takes it anew, attempt 1 as A had it; then A fails."""
    inside, go_on, run = held_open(shop, lease=0.4, renew=False, fails=True)

    def others() -> None:
        inside.wait(20)
        with pytest.raises(Fails):
            taken_over(shop, failing)

        def while_a_fails() -> None:
            go_on.set()
            wait_until(late.is_set, "A has failed")
            assert shop.row("e1") == (0, 1)

        taken_over(shop, while_a_fails)

    late = threading.Event()

    def first() -> None:
        with pytest.raises(LeaseLost):
            run()
        late.set()

    in_threads([first, others])
    assert shop.row("e1") == (1, 1)


def test_a_lease_is_renewed_while_the_handler_runs(shop: Shop) -> None:
    inside, go_on, run = held_open(shop, lease=1.2)

    def other() -> None:
        inside.wait(20)
        until = time.monotonic() + 2.4
        while time.monotonic() < until:
            with pytest.raises(EventBusy):
                shop.consumer(mode="record_first").process("e1", failing)
            time.sleep(0.02)
        go_on.set()

    in_threads([run, other])
    assert shop.row("e1") == (1, 1)


def test_a_lease_does_not_depend_on_the_sessions_time_zone(shop: Shop) -> None:
    inside, go_on, run = held_open(
        shop, connect=lambda: shop.connect(init_command="SET time_zone = '-11:00'"), lease=20.0
    )

    def other() -> None:
        inside.wait(20)
        far_east = shop.consumer(
            mode="record_first", connect=lambda: shop.connect(init_command="SET time_zone = '+13:00'")
        )
        with pytest.raises(EventBusy) as busy:
            far_east.process("e1", failing)
        go_on.set()
        assert 0 < busy.value.retry_after <= 20

    in_threads([run, other])


# -- deadlocks, transactions ended by the handler ---------------------------------------------------------------------


def test_a_deadlock_is_tried_again(shop: Shop) -> None:
    shop.execute("CREATE TABLE stock (id INT PRIMARY KEY, n INT) ENGINE=InnoDB")
    shop.execute("INSERT INTO stock VALUES (1, 0), (2, 0)")
    meet = threading.Barrier(2)
    calls: list[str] = []

    def move(event_id: str, first: int, second: int) -> Callable[[Any], None]:
        def handler(connection: Any) -> None:
            calls.append(event_id)
            with connection.cursor() as cursor:
                cursor.execute("UPDATE stock SET n = n + 1 WHERE id = %s", (first,))
                if len(calls) <= 2:
                    meet.wait(20)
                cursor.execute("UPDATE stock SET n = n + 1 WHERE id = %s", (second,))

        return handler

    consumer = shop.consumer()
    in_threads(
        [
            lambda: consumer.process("e1", move("e1", 1, 2)),
            lambda: consumer.process("e2", move("e2", 2, 1)),
        ]
    )
    assert len(calls) == 3
    assert shop.execute("SELECT n FROM stock") == [(2,), (2,)]
    assert shop.row("e1") == shop.row("e2") == (1, 1)


def test_a_handler_that_rolls_back_is_found_out(shop: Shop) -> None:
    def handler(connection: Any) -> None:
        shop.write(connection, "e1")
        connection.rollback()
        shop.write(connection, "e1", "leaked")

    with pytest.raises(TransactionEnded, match="must not commit, roll back"):
        shop.consumer().process("e1", handler)
    assert not shop.effects()
    assert shop.row("e1") is None


def test_an_event_in_anothers_transaction_is_busy(shop: Shop) -> None:
    """It waits as long as the connection says, and comes again."""
    other = shop.consumer(connect=lambda: shop.connect(init_command="SET innodb_lock_wait_timeout = 1"))

    def handler(_: Any) -> None:
        with pytest.raises(EventBusy):
            other.process("e1", failing)

    shop.consumer().process("e1", handler)
    assert other.process("e1", failing).outcome is Outcome.DUPLICATE


# -- outages ----------------------------------------------------------------------------------------------------------


def test_mysql_gone_and_back(make_mysql: Callable[..., Server[MySQLEndpoint]]) -> None:
    server = make_mysql()
    shop = make_shop(server.endpoint)
    consumers = {mode: shop.consumer(mode=mode) for mode in MODES}
    for mode, consumer in consumers.items():
        consumer.process(f"{mode} 1", effect(shop, mode, f"{mode} 1"))
    server.kill()
    for mode, consumer in consumers.items():
        with pytest.raises(pymysql.err.OperationalError):
            consumer.process(f"{mode} 2", effect(shop, mode, f"{mode} 2"))
    server.start()
    for mode, consumer in consumers.items():
        consumer.process(f"{mode} 2", effect(shop, mode, f"{mode} 2"))

    calls: list[str] = []

    back = threading.Thread(target=server.start)

    def dies_once(mode: str, *given: Any) -> None:
        calls.append(mode)
        effect(shop, mode, f"{mode} 3")(*given)
        if calls.count(mode) == 1:
            server.kill()
            if mode == "transactional":
                server.start()
            else:
                back.start()  # away while the record is to be set to done

    for mode, consumer in consumers.items():
        consumer.process(f"{mode} 3", lambda *given, mode=mode: dies_once(mode, *given))
        consumer.close()
    back.join(60)
    # The transaction died with the server and is done anew; the outside effect is not, only its record waited.
    assert calls == ["transactional", "transactional", "record_first"]
    assert shop.effects() == {f"{mode} {number}": 1 for mode in MODES for number in (1, 2, 3)}


@both_modes
def test_mysql_connector(shop: Shop, mode: str) -> None:
    """Another driver: its own error classes, bytes where PyMySQL gives text."""

    def connect() -> Any:
        return mysql.connector.connect(
            host=shop.host, port=shop.port, user=shop.user, password=shop.password, database=shop.database
        )

    dead: list[Failure] = []
    with shop.consumer(mode=mode, connect=connect, max_attempts=2, retry_waits=[0.0], dead_letter=dead.append) as one:
        outcomes = [one.process("e1", effect_by_cursor(shop, mode, "e1")).outcome for _ in range(2)]
        with pytest.raises(Fails):
            one.process("e2", failing)
        outcomes.append(one.process("e2", failing).outcome)
        for (thread,) in shop.execute(
            "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()", shop.database
        ):
            with contextlib.suppress(pymysql.MySQLError):
                shop.execute(f"KILL {thread}")
        outcomes.append(one.process("e3", effect_by_cursor(shop, mode, "e3")).outcome)
    assert outcomes == [Outcome.DONE, Outcome.DUPLICATE, Outcome.DEAD, Outcome.DONE]
    assert shop.effects() == {"e1": 1, "e3": 1}


def effect_by_cursor(shop: Shop, mode: str, event_id: str) -> Callable[..., None]:
    def handler(*given: Any) -> None:
        if mode == "transactional":
            cursor = given[0].cursor()
            cursor.execute("INSERT INTO effect VALUES (%s, NULL)", (event_id,))
            cursor.close()
        else:
            shop.act(event_id)

    return handler


@both_modes
def test_a_connection_that_died_idle_is_replaced(shop: Shop, mode: str) -> None:
    opened: list[Any] = []

    def connect() -> Any:
        opened.append(shop.connect())
        return opened[-1]

    consumer = shop.consumer(mode=mode, connect=connect)
    consumer.process("e1", effect(shop, mode, "e1"))
    shop.execute(f"KILL {opened[0].thread_id()}")
    assert consumer.process("e2", effect(shop, mode, "e2")).outcome is Outcome.DONE
    assert len(opened) == 2


@both_modes
def test_without_its_table_it_says_what_to_do(shop: Shop, mode: str) -> None:
    with pytest.raises(Refused) as refused:
        shop.consumer(mode=mode, table="nowhere").process("e1", failing)
    assert "init --consumer" in str(refused.value.hint)


# -- retries and dead letters -----------------------------------------------------------------------------------------


@both_modes
def test_attempts_are_counted_and_then_it_is_a_dead_letter(shop: Shop, mode: str) -> None:
    dead: list[Failure] = []
    consumer = shop.consumer(mode=mode, max_attempts=3, retry_waits=[0.0], dead_letter=dead.append)
    for attempts in (1, 2):
        with pytest.raises(Fails):
            consumer.process("e1", failing, "order 1")
        assert shop.row("e1") == (0, attempts)
    assert consumer.process("e1", failing, "order 1").outcome is Outcome.DEAD
    assert consumer.process("e1", failing, "order 1").outcome is Outcome.DUPLICATE
    (failure,) = dead
    assert (failure.event_id, failure.attempts, failure.args) == ("e1", 3, ("order 1",))
    assert isinstance(failure.error, Fails)
    assert shop.row("e1") == (1, 3)


@both_modes
def test_a_retry_waits_for_its_time_whoever_asks(shop: Shop, mode: str) -> None:
    consumer = shop.consumer(mode=mode, max_attempts=3, retry_waits=[1.5], dead_letter=print)
    with pytest.raises(Fails):
        consumer.process("e1", failing)
    with pytest.raises(EventBusy) as busy:
        shop.consumer(mode=mode).process("e1", failing)
    assert 0 < busy.value.retry_after <= 1.5

    def again() -> bool:
        try:
            return consumer.process("e1", effect(shop, mode, "e1")).attempts == 2
        except EventBusy:
            return False

    wait_until(again, "the retry is due")


@both_modes
def test_the_retry_hook_decides(shop: Shop, mode: str) -> None:
    asked: list[int] = []
    dead: list[Failure] = []

    def retry(failure: Failure) -> float | None:
        asked.append(failure.attempts)
        return 0.0 if failure.attempts < 2 else None

    consumer = shop.consumer(mode=mode, retry=retry, dead_letter=dead.append)
    with pytest.raises(Fails):
        consumer.process("e1", failing)
    assert consumer.process("e1", failing).outcome is Outcome.DEAD
    assert asked == [1, 2]
    assert len(dead) == 1


@both_modes
def test_a_dead_letter_that_cannot_be_delivered_comes_again(shop: Shop, mode: str) -> None:
    told: list[Failure] = []

    def dead_letter(failure: Failure) -> None:
        told.append(failure)
        if len(told) == 1:
            raise ConnectionError("no broker")

    consumer = shop.consumer(mode=mode, max_attempts=1, retry_waits=[0.0], dead_letter=dead_letter)
    with pytest.raises(ConnectionError):
        consumer.process("e1", failing)
    assert shop.row("e1") == (0, 1)
    assert consumer.process("e1", effect(shop, mode, "e1")).outcome is Outcome.DEAD
    assert isinstance(told[1].error, AttemptsUsedUp)
    assert not shop.effects()


def test_a_crash_counts_as_an_attempt(shop: Shop) -> None:
    """An event that kills its consumer does not kill one after the other for ever."""
    victim = ConsumerProcess(shop, mode="record_first", lease=0.5, events=["e1"], stop_at={"e1": "before"})
    victim.wait_for("before e1")
    victim.kill()
    dead: list[Failure] = []
    consumer = shop.consumer(mode="record_first", max_attempts=1, dead_letter=dead.append)

    def again() -> Any:
        try:
            return consumer.process("e1", failing)
        except EventBusy:
            return None

    assert wait_until(again, "the lease ends").outcome is Outcome.DEAD
    assert isinstance(dead[0].error, AttemptsUsedUp)


def test_a_dead_letter_may_be_a_row_of_the_same_transaction(shop: Shop) -> None:
    def dead_letter(failure: Failure) -> None:
        shop.write(failure.connection, failure.event_id, "dead")

    def half(connection: Any) -> None:
        shop.write(connection, "e1", "half")
        raise Fails

    consumer = shop.consumer(max_attempts=1, dead_letter=dead_letter)
    assert consumer.process("e1", half).outcome is Outcome.DEAD
    assert shop.execute("SELECT * FROM effect") == [("e1", "dead")]


# -- async ------------------------------------------------------------------------------------------------------------


@both_modes
def test_async_handlers(shop: Shop, mode: str) -> None:
    async def handler(*given: Any) -> str:
        await asyncio.sleep(0)
        return effect(shop, mode, "e1")(*given)

    consumer = shop.consumer(mode=mode)

    async def service() -> tuple[Outcome, Outcome]:
        first, second = [await consumer.process_async("e1", handler) for _ in range(2)]
        return first.outcome, second.outcome

    assert asyncio.run(service()) == (Outcome.DONE, Outcome.DUPLICATE)
    assert consumer.process("e2", handler).value == "did e1"  # an event loop of its own


@both_modes
def test_an_async_handler_that_is_cancelled_gives_its_event_back(shop: Shop, mode: str) -> None:
    consumer = shop.consumer(mode=mode, max_attempts=1, dead_letter=failing)

    async def service() -> None:
        inside = asyncio.Event()

        async def handler(*_: Any) -> None:
            inside.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(consumer.process_async("e1", handler))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(service())
    assert shop.row("e1") == (None if mode == "transactional" else (0, 1))


def test_an_async_handler_in_a_running_loop_needs_the_async_way(shop: Shop) -> None:
    async def handler(_: Any) -> None:
        """Never runs."""

    async def service() -> None:
        shop.consumer().process("e1", handler)

    with pytest.raises(TypeError, match="process_async"):
        asyncio.run(service())


# -- connections ------------------------------------------------------------------------------------------------------


@pytest.fixture
def engine(shop: Shop) -> Any:
    url = sqlalchemy.URL.create("mysql+pymysql", shop.user, shop.password, shop.host, shop.port, shop.database)
    engine = sqlalchemy.create_engine(url)
    yield engine
    engine.dispose()


class Base(orm.DeclarativeBase):
    pass


class Effect(Base):
    __tablename__ = "effect"
    event_id: orm.Mapped[str] = orm.mapped_column(sqlalchemy.String(64), primary_key=True)
    note: orm.Mapped[str | None] = orm.mapped_column(sqlalchemy.String(64))


@both_modes
def test_a_sqlalchemy_engine(shop: Shop, engine: Any, mode: str) -> None:
    consumer = shop.consumer(mode=mode, connect=engine)

    def handler(*given: Any) -> None:
        if given:
            given[0].execute(sqlalchemy.insert(Effect).values(event_id="e1"))
        else:
            shop.act("e1")

    assert [consumer.process("e1", handler).outcome for _ in range(2)] == [Outcome.DONE, Outcome.DUPLICATE]
    with pytest.raises(Fails):
        consumer.process("e2", failing)
    assert shop.effects() == {"e1": 1}
    assert engine.pool.checkedout() == 0


def test_what_a_sqlalchemy_session_cannot_write_is_a_failure(shop: Shop, engine: Any) -> None:
    consumer = shop.consumer(connect=orm.sessionmaker(engine))
    assert consumer.process("e1", lambda session: session.add(Effect(event_id="e1"))).outcome is Outcome.DONE
    with pytest.raises(sqlalchemy.exc.DataError):
        consumer.process("e2", lambda session: session.add(Effect(event_id="x" * 65)))
    assert shop.effects() == {"e1": 1}
    assert shop.row("e2") is None


@pytest.mark.parametrize(
    "options", [{"autocommit": True}, {"cursorclass": DictCursor}], ids=lambda one: next(iter(one))
)
@both_modes
def test_connections_may_be_set_up_in_any_way(shop: Shop, mode: str, options: dict[str, Any]) -> None:
    consumer = shop.consumer(mode=mode, connect=lambda: shop.connect(**options))
    with pytest.raises(Fails):
        consumer.process("e1", failing)
    outcomes = [consumer.process("e1", effect(shop, mode, "e1")).outcome for _ in range(2)]
    assert outcomes == [Outcome.DONE, Outcome.DUPLICATE]


def test_a_record_in_a_transaction_of_ones_own(shop: Shop) -> None:
    consumer = shop.consumer()
    with shop.connect() as connection:
        assert consumer.record(connection, "e1")
        connection.rollback()
        assert consumer.record(connection, "e1")
        shop.write(connection, "e1")
        connection.commit()
        assert not consumer.record(connection, "e1")
        connection.rollback()
    assert shop.effects() == {"e1": 1}
    assert shop.row("e1") == (1, 1)


def test_a_record_outside_a_transaction_is_refused(shop: Shop, engine: Any) -> None:
    with shop.connect(autocommit=True) as connection:
        with pytest.raises(NotInTransaction, match="not recorded"):
            shop.consumer().record(connection, "e1")
        connection.begin()
        assert shop.consumer().record(connection, "e1")
        connection.rollback()
    with orm.Session(engine) as session:
        assert shop.consumer().record(session, "e1")
        session.commit()
    assert shop.row("e1") == (1, 1)


def test_a_record_of_ones_own_respects_leases_and_failures(shop: Shop) -> None:
    counting = shop.consumer(max_attempts=5, retry_waits=[0.0], dead_letter=print)
    with pytest.raises(Fails):
        counting.process("e1", failing)
    with shop.connect() as connection:
        assert counting.record(connection, "e1")
        connection.commit()
    assert shop.row("e1") == (1, 2)

    def handler() -> None:
        with shop.connect() as connection, pytest.raises(EventBusy):
            counting.record(connection, "e2")

    shop.consumer(mode="record_first").process("e2", handler)


# -- upkeep -----------------------------------------------------------------------------------------------------------


def test_purge_deletes_what_is_old_in_small_transactions(shop: Shop) -> None:
    consumer, other = shop.consumer(), shop.consumer(group="mail")
    for number in range(7):
        consumer.process(f"old{number}", lambda _: None)
    other.process("old0", lambda _: None)
    shop.execute("UPDATE processed_event SET processed_at = processed_at - INTERVAL 8 DAY, created_at = processed_at")
    consumer.process("new", lambda _: None)
    values = "VALUES ('inventory', %s, 0, UTC_TIMESTAMP(3) + INTERVAL %s DAY, 1, UTC_TIMESTAMP(3) - INTERVAL 8 DAY)"
    insert = "INSERT INTO processed_event (consumer_group, event_id, state, lease_until, attempts, created_at)"
    shop.execute(f"{insert} {values}", "left behind", -8)
    shop.execute(f"{insert} {values}", "running", 1)
    assert consumer.purge(7 * 86400, batch=3, pause=0) == 8
    left = {event_id for (event_id,) in shop.execute("SELECT event_id FROM processed_event")}
    assert left == {"new", "running", "old0"}


@pytest.mark.parametrize("event_id", ["", "x" * 65, "e1 "])
def test_an_id_that_mysql_would_not_keep_as_it_is_is_refused(shop: Shop, event_id: str) -> None:
    with pytest.raises(Refused, match="event id"):
        shop.consumer().process(event_id, failing)
