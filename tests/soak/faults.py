"""What goes wrong in a soak, when and for how long: chosen by a seed, so that a soak can be run again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pymysql

from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.process import RelayProcess
from tests.harness.world import World


@dataclass(frozen=True)
class Fault:
    """at: seconds after the start. kind: a method of Faults. lasting: seconds until it is taken back."""

    at: float
    kind: str
    lasting: float


DEADLOCK = 1213

KINDS = (
    "kill_a_relay",
    "kill_a_relay",
    "freeze_a_relay",
    "stop_a_relay",
    "kill_the_broker",
    "freeze_the_broker",
    "stop_the_broker",
    "kill_mysql",
    "restart_mysql",
    "freeze_mysql",
    "kill_connections",
    "lock_rows",
    "lose_the_checkpoint",
)


ENDS_A_RELAY = ("kill_a_relay", "stop_a_relay")


def schedule(seed: int, seconds: float, every: tuple[float, float], *, keep_relays: bool = False) -> list[Fault]:
    """every: shortest and longest pause between two faults, in seconds. keep_relays: none that ends a relay."""
    chance = random.Random(seed)
    kinds = [kind for kind in KINDS if not keep_relays or kind not in ENDS_A_RELAY]
    faults: list[Fault] = []
    at = chance.uniform(*every)
    while at < seconds:
        faults.append(Fault(at, chance.choice(kinds), chance.uniform(0.5, 8.0)))
        at += faults[-1].lasting + chance.uniform(*every)
    return faults


class Faults:
    """Carries them out. Each method returns when the fault is over."""

    def __init__(
        self,
        world: World,
        mysql: Server[MySQLEndpoint],
        kafka: Server[KafkaEndpoint],
        start: Callable[[], RelayProcess],
        seed: int,
    ) -> None:
        """start: begins another relay."""
        self._world = world
        self._mysql = mysql
        self._kafka = kafka
        self._start = start
        self._chance = random.Random(seed)
        self.relays = [start(), start()]
        self.deaths = 0
        """Relays that crashed, froze or lost what they had in hand to an outage: each excuses duplicates."""

    def carry_out(self, fault: Fault) -> None:
        """Raises AssertionError when a relay has ended that nobody ended."""
        getattr(self, fault.kind)(fault.lasting)
        for relay in self.relays:
            assert relay.running, "a relay ended by itself:\n" + "\n".join(relay.raw[-30:])

    def _a_relay(self) -> RelayProcess:
        return self._chance.choice(self.relays)

    def _end(self, end: Callable[[RelayProcess], object]) -> None:
        """And begin another in its place."""
        number = self._chance.randrange(len(self.relays))
        end(self.relays[number])
        self.relays[number] = self._start()

    def kill_a_relay(self, lasting: float) -> None:
        self.deaths += 1
        self._end(RelayProcess.kill)

    def freeze_a_relay(self, lasting: float) -> None:
        """Often for longer than leadership_timeout: the other one takes over."""
        self.deaths += 1
        relay = self._a_relay()
        relay.pause()
        time.sleep(lasting)
        relay.resume()

    def stop_a_relay(self, lasting: float) -> None:
        self._end(self._stop)

    def _stop(self, relay: RelayProcess) -> None:
        assert relay.stop() == 0, "a relay did not stop in good order"

    def kill_the_broker(self, lasting: float) -> None:
        self._without(self._kafka, self._kafka.kill, lasting)

    def stop_the_broker(self, lasting: float) -> None:
        self._without(self._kafka, self._kafka.stop, lasting)

    def kill_mysql(self, lasting: float) -> None:
        self._without(self._mysql, self._mysql.kill, lasting)

    def restart_mysql(self, lasting: float) -> None:
        self._without(self._mysql, self._mysql.stop, lasting)

    def _without(
        self, server: Server[MySQLEndpoint] | Server[KafkaEndpoint], end: Callable[[], None], lasting: float
    ) -> None:
        self.deaths += 1
        end()
        time.sleep(lasting)
        server.start()

    def freeze_the_broker(self, lasting: float) -> None:
        self.deaths += 1
        self._kafka.pause()
        time.sleep(lasting)
        self._kafka.resume()

    def freeze_mysql(self, lasting: float) -> None:
        self.deaths += 1
        self._mysql.pause()
        time.sleep(lasting)
        self._mysql.resume()

    def kill_connections(self, lasting: float) -> None:
        """Some of everybody's, the writers' included."""
        self.deaths += 1
        with self._world.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND DB IS NOT NULL"
            )
            ids = [id for (id,) in cursor.fetchall()]
            for id in self._chance.sample(ids, min(3, len(ids))):
                with suppress(pymysql.MySQLError):
                    cursor.execute(f"KILL {id}")

    def lock_rows(self, lasting: float) -> None:
        """An application's transaction holds the newest rows."""
        with self._world.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while True:
                try:
                    cursor.execute("SELECT id FROM outbox_event ORDER BY id DESC LIMIT 20 FOR UPDATE")
                    break
                except pymysql.err.OperationalError as error:
                    if error.args[0] != DEADLOCK:  # with the writer, whose next id it would lock as well
                        raise
            time.sleep(lasting)
            connection.rollback()

    def lose_the_checkpoint(self, lasting: float) -> None:
        self.deaths += 1
        with self._world.connect() as connection, connection.cursor() as cursor:
            cursor.execute("DELETE FROM cdc_outbox_checkpoint")
