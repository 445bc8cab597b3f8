"""What the demo and the examples stand on: MySQL and Kafka, a database, a topic, settings, a relay; gone at the end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pymysql
import yaml
from confluent_kafka import KafkaException

from cdc_outbox.testing.demo.consumer import make_topic, remove_topic
from cdc_outbox.testing.demo.relay import DemoRelay
from cdc_outbox.testing.demo.shop import connect
from cdc_outbox.testing.demo.supervised import Broken
from cdc_outbox.testing.services.child import PrivateFolder, end_all, interrupted_by_signals
from cdc_outbox.testing.services.endpoint import free_port, wait_until
from cdc_outbox.testing.services.pair import Pair, start_pair
from cdc_outbox.testing.services.providers import NoService

READY_DEADLINE = 30.0
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Stage:
    """database: also begins its topics' names, with - for _. folder: for logs and the like, gone at the end."""

    pair: Pair
    database: str
    folder: Path
    config: Path
    relay: DemoRelay

    @property
    def topic(self) -> str:
        """Where events of aggregate type `order` go."""
        return _topic(self.database, "order")

    @property
    def bootstrap(self) -> str:
        return self.pair.kafka.endpoint.bootstrap

    def connect(self, *, autocommit: bool = False) -> pymysql.Connection[Any]:
        return connect(self.pair.mysql.endpoint, self.database, autocommit=autocommit)

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """One statement by itself, and its rows."""
        with self.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def configure(self, **sections: dict[str, Any]) -> None:
        """Write the relay's settings, sections over those of the demo. A relay that runs must be started again."""
        mysql = self.pair.mysql.endpoint
        settings: dict[str, Any] = {
            "name": "demo",
            "mysql": {
                "host": mysql.host,
                "port": mysql.port,
                "user": mysql.user,
                "password": mysql.password,
                "database": self.database,
            },
            "outbox": {"tables": ["outbox_event"]},
            "kafka": {
                "bootstrap_servers": self.bootstrap,
                "topic": _topic(self.database, "{aggregate_type}"),
                "dead_letter_topic": _topic(self.database, "dead-letter"),
            },
            "limits": {"shutdown_timeout": "5s"},
            "http": {"listen": self.relay.http},
        }
        for section, values in sections.items():
            settings[section] = {**settings.get(section, {}), **values}
        self.config.touch(mode=0o600)  # it may hold a password
        self.config.write_text(yaml.safe_dump(settings, sort_keys=False))

    def start_relay(self) -> None:
        """Returns when it leads. Raises Broken."""
        say("Waiting for `cdc-outbox start` to lead")
        self.relay.start()
        if not wait_until(self._leads, seconds=READY_DEADLINE):
            raise Broken(
                f"It did not lead within {READY_DEADLINE:.0f} s.\n{self.relay.log.read_text(errors='replace')}"
            )

    def _leads(self) -> bool:
        self.relay.keep_running()
        return self.relay.ready()


@contextlib.contextmanager
def stage(database: str, *, anew: bool = False, consumer: bool = False, keep: bool = False) -> Iterator[Stage]:
    """Find or start the services, make the database and `cdc-outbox init` in it; all is taken away at the end.

    anew: a database of that name is dropped first, else it is an error; consumer: with the tables of
    IdempotentConsumer; keep: database and topic stay where the services do. Raises what `perform` explains.
    """
    with contextlib.ExitStack() as at_the_end:
        say("Looking for MySQL and Kafka")
        pair = start_pair(say)
        at_the_end.callback(pair.remove)
        folder = PrivateFolder("demo")
        at_the_end.callback(folder.remove)
        config = folder.path / "demo.yaml"
        made = Stage(pair, database, folder.path, config, DemoRelay(config, f"127.0.0.1:{free_port()}"))
        made.configure()
        say(f"Setting up: database {database}, topic {made.topic}, then `cdc-outbox init`")
        _make_database(made, anew=anew)
        if not keep:
            at_the_end.callback(_clean_up, made)
        at_the_end.callback(made.relay.stop)
        make_topic(made.bootstrap, made.topic)
        made.relay.init(*(["--consumer"] if consumer else []))
        yield made


def perform(play: Callable[[], int]) -> NoReturn:
    """Run it and end with its exit code; nothing is left running. What a person can put right is said, not thrown."""
    try:
        with interrupted_by_signals():
            outcome = play()
    except NoService as page:
        say(f"\n{page}")
        outcome = EXIT_REFUSED
    except Broken as error:
        say(f"\nIt does not run. Its own words:\n{error}")
        outcome = EXIT_REFUSED
    except (pymysql.err.MySQLError, KafkaException) as error:
        say(f"\nIt could not be set up: {error}")
        outcome = EXIT_REFUSED
    except KeyboardInterrupt:
        say("\nInterrupted; nothing is left running.")
        outcome = EXIT_INTERRUPTED
    end_all()
    raise SystemExit(outcome)


def say(text: str) -> None:
    sys.stderr.write(text + "\n")  # in one piece: threads speak, too


def _topic(database: str, last: str) -> str:
    return f"{database.replace('_', '-')}.{last}"


def _make_database(made: Stage, *, anew: bool) -> None:
    with connect(made.pair.mysql.endpoint, None, autocommit=True) as connection, connection.cursor() as cursor:
        if anew:
            cursor.execute(f"DROP DATABASE IF EXISTS `{made.database}`")
        cursor.execute(f"CREATE DATABASE `{made.database}` CHARACTER SET utf8mb4")


def _clean_up(made: Stage) -> None:
    """Leave services that are not ours as they were."""
    if made.pair.mysql.server is None:
        with (
            contextlib.suppress(pymysql.err.MySQLError),
            connect(made.pair.mysql.endpoint, None, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"DROP DATABASE IF EXISTS `{made.database}`")
    if made.pair.kafka.server is None:
        with contextlib.suppress(KafkaException):
            remove_topic(made.bootstrap, made.topic)
