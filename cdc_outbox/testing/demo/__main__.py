"""The demo from start to end: services, configuration, relay, orders, screen; everything stopped at the end."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pymysql
import yaml
from confluent_kafka import KafkaException
from rich.console import Console

from cdc_outbox.testing.demo.board import Board
from cdc_outbox.testing.demo.consumer import TopicReader, make_topic, remove_topic
from cdc_outbox.testing.demo.orders import ORDERS_TABLE
from cdc_outbox.testing.demo.relay import DemoRelay, RelayFailed, command
from cdc_outbox.testing.demo.revival import Revival
from cdc_outbox.testing.demo.screen import PlainScreen, Scene, TerminalScreen, summary
from cdc_outbox.testing.demo.shop import Shop, connect
from cdc_outbox.testing.services.child import PrivateFolder, end_all, interrupted_by_signals
from cdc_outbox.testing.services.endpoint import MySQLEndpoint, free_port, wait_until
from cdc_outbox.testing.services.pair import Pair, start_pair
from cdc_outbox.testing.services.providers import NoService

DATABASE = "cdc_outbox_demo"
TOPIC = "cdc-outbox-demo.order"
REFRESH = 0.2
READY_DEADLINE = 30.0
LAST_EVENTS = 20.0
"""Seconds that the last events get to arrive after --seconds; a quarter of it after Ctrl-C."""
POLLED = 500
"""So many unsettled rows are looked up at a time."""
EXIT_MISSING = 1
EXIT_REFUSED = 2


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    try:
        with interrupted_by_signals():
            return _demo(options.rate, options.seconds)
    except NoService as page:
        _say(f"\n{page}")
    except RelayFailed as error:
        _say(f"\nThe relay does not run. Its own words:\n{error}")
    except (pymysql.err.MySQLError, KafkaException) as error:
        _say(f"\nThe demo could not be set up: {error}")
    except KeyboardInterrupt:
        _say("\nInterrupted; nothing is left running.")
        return 130
    return EXIT_REFUSED


def _demo(rate: float, seconds: float | None) -> int:
    began = time.monotonic()
    _say("Looking for MySQL and Kafka")
    pair = start_pair(_say)
    folder = PrivateFolder("demo")
    http = f"127.0.0.1:{free_port()}"
    config = _write_config(folder.path, pair, http)
    relay = DemoRelay(config, http)
    try:
        _say(f"Setting up: database {DATABASE}, topic {TOPIC}, then `cdc-outbox init`")
        _make_database(pair.mysql.endpoint)
        make_topic(pair.kafka.endpoint.bootstrap, TOPIC)
        relay.init()
        relay.start()
        _say("Waiting for `cdc-outbox start` to lead")
        wait_until(lambda: _ready(relay), seconds=READY_DEADLINE)
        _say(f"Ready {time.monotonic() - began:.0f} s after the start. Orders come in now; Ctrl-C ends the demo.")
        return _watch(pair, relay, config, rate, seconds)
    finally:
        relay.stop()
        _clean_up(pair)
        folder.remove()
        pair.remove()


def _ready(relay: DemoRelay) -> bool:
    relay.keep_running()
    return relay.ready()


def _watch(pair: Pair, relay: DemoRelay, config: Path, rate: float, seconds: float | None) -> int:
    board = Board()
    reader = TopicReader(pair.kafka.endpoint.bootstrap, TOPIC, board.see)
    shop = Shop(pair.mysql.endpoint, DATABASE, rate, board.add)
    console = Console()
    screen = (TerminalScreen if console.is_terminal else PlainScreen)(console, board)
    revival = None if pair.kafka.server is None else Revival(pair.kafka.server)

    def step() -> None:
        relay.keep_running()
        troubles = [shop.trouble, revival.step() if revival else None, _look_up(pair.mysql.endpoint, board)]
        screen.show(_scene(pair, relay, config, [trouble for trouble in troubles if trouble]))

    def all_arrived() -> bool:
        step()
        return not board.totals().missing and not board.unsettled()

    reader.start()
    try:
        with screen:
            shop.start()
            deadline = None if seconds is None else time.monotonic() + seconds
            patience = LAST_EVENTS
            try:
                while deadline is None or time.monotonic() < deadline:
                    step()
                    time.sleep(REFRESH)
            except KeyboardInterrupt:
                patience = LAST_EVENTS / 4
            shop.stop()
            wait_until(all_arrived, seconds=patience, pause=REFRESH)
    finally:
        shop.stop()
        reader.stop()
    totals = board.totals()
    _say(f"\n{summary(totals)}. Starts of the relay: {relay.starts}.")
    return EXIT_MISSING if totals.missing else 0


def _scene(pair: Pair, relay: DemoRelay, config: Path, troubles: list[str]) -> Scene:
    pid = relay.pid
    if pid is None:
        troubles = ["the relay has died and is started again", *troubles]
    return Scene(
        mysql=pair.mysql.endpoint.address,
        kafka=pair.kafka.endpoint.address,
        relay="down" if pid is None else f"pid {pid} (start {relay.starts})",
        advice=_advice(pair, relay, config),
        troubles=troubles,
    )


def _advice(pair: Pair, relay: DemoRelay, config: Path) -> list[tuple[str, str]]:
    advice = []
    if relay.pid is not None:
        advice.append((f"kill -9 {relay.pid}", "the relay dies at work: it is started again, and nothing is lost"))
    server = pair.kafka.server
    outage = pair.kafka.outage if server is None else server.outage if server.alive else None
    if outage is not None:
        advice.append((f"{outage[0]}; sleep 15; {outage[1]}", "the broker hangs: its rows wait, no retry is spent"))
    advice.append((f"{shlex.join(command())} --config {config} status", "what the relay says of itself"))
    advice.append((f"curl http://{relay.http}/metrics", "its figures"))
    advice.append(("Ctrl-C, here", "ends it all: nothing is left running"))
    return advice


def _look_up(server: MySQLEndpoint, board: Board) -> str | None:
    """Read the state of the rows that are not settled yet; what is amiss, None when nothing is."""
    names = board.unsettled()[:POLLED]
    if not names:
        return None
    marks = ", ".join(["%s"] * len(names))
    query = (
        f"SELECT event_id, status, status = 3 AND next_retry_at IS NULL FROM outbox_event WHERE event_id IN ({marks})"
    )
    try:
        with connect(server, DATABASE, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(query, names)
            board.set_states((str(name), int(status), bool(dead)) for name, status, dead in cursor.fetchall())
    except pymysql.err.MySQLError:
        return "MySQL does not answer"
    return None


def _write_config(folder: Path, pair: Pair, http: str) -> Path:
    mysql = pair.mysql.endpoint
    settings = {
        "name": "demo",
        "mysql": {
            "host": mysql.host,
            "port": mysql.port,
            "user": mysql.user,
            "password": mysql.password,
            "database": DATABASE,
        },
        "outbox": {"tables": ["outbox_event"]},
        "kafka": {
            "bootstrap_servers": pair.kafka.endpoint.bootstrap,
            "topic": TOPIC.replace("order", "{aggregate_type}"),
            "dead_letter_topic": "cdc-outbox-demo.dead-letter",
        },
        "limits": {"shutdown_timeout": "5s"},
        "http": {"listen": http},
    }
    path = folder / "demo.yaml"
    path.touch(mode=0o600)  # it may hold a password
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


def _make_database(server: MySQLEndpoint) -> None:
    with connect(server, None, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute(ORDERS_TABLE)


def _clean_up(pair: Pair) -> None:
    """Leave services that are not ours as they were."""
    if pair.mysql.server is None:
        with (
            contextlib.suppress(pymysql.err.MySQLError),
            connect(pair.mysql.endpoint, None, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    if pair.kafka.server is None:
        with contextlib.suppress(KafkaException):
            remove_topic(pair.kafka.endpoint.bootstrap, TOPIC)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Watch orders travel from MySQL to Kafka.")
    parser.add_argument("--seconds", type=float, metavar="N", help="end after N seconds (default: at Ctrl-C)")
    parser.add_argument("--rate", type=float, default=4.0, metavar="N", help="events a second (default: 4)")
    options = parser.parse_args(arguments)
    if options.rate <= 0:
        parser.error("--rate must be above 0")
    return options


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    outcome = main(sys.argv[1:])
    end_all()
    raise SystemExit(outcome)
