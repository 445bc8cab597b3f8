"""The demo from start to end: services, configuration, relay, orders, screen; everything stopped at the end."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence

import pymysql
from rich.console import Console

from cdc_outbox.testing.demo.board import Board
from cdc_outbox.testing.demo.consumer import TopicReader
from cdc_outbox.testing.demo.orders import ORDERS_TABLE
from cdc_outbox.testing.demo.relay import command
from cdc_outbox.testing.demo.revival import Revival
from cdc_outbox.testing.demo.screen import PlainScreen, Scene, TerminalScreen, summary
from cdc_outbox.testing.demo.shop import Shop, connect
from cdc_outbox.testing.demo.stage import Stage, perform, say, stage
from cdc_outbox.testing.services.endpoint import MySQLEndpoint, wait_until

DATABASE = "cdc_outbox_demo"
REFRESH = 0.2
LAST_EVENTS = 20.0
"""Seconds that the last events get to arrive after --seconds; a quarter of it after Ctrl-C."""
POLLED = 500
"""So many unsettled rows are looked up at a time."""
EXIT_MISSING = 1


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    began = time.monotonic()
    with stage(DATABASE, anew=True) as made:
        made.execute(ORDERS_TABLE)
        made.start_relay()
        say(f"Ready {time.monotonic() - began:.0f} s after the start. Orders come in now; Ctrl-C ends the demo.")
        return _watch(made, options.rate, options.seconds)


def _watch(made: Stage, rate: float, seconds: float | None) -> int:
    pair, relay = made.pair, made.relay
    board = Board()
    reader = TopicReader(made.bootstrap, made.topic, board.see)
    shop = Shop(pair.mysql.endpoint, DATABASE, rate, board.add)
    console = Console()
    screen = (TerminalScreen if console.is_terminal else PlainScreen)(console, board)
    revival = None if pair.kafka.server is None else Revival(pair.kafka.server)

    def step() -> None:
        relay.keep_running()
        troubles = [shop.trouble, revival.step() if revival else None, _look_up(pair.mysql.endpoint, board)]
        screen.show(_scene(made, [trouble for trouble in troubles if trouble]))

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
    say(f"\n{summary(totals)}. Starts of the relay: {relay.starts}.")
    return EXIT_MISSING if totals.missing else 0


def _scene(made: Stage, troubles: list[str]) -> Scene:
    pid = made.relay.pid
    if pid is None:
        troubles = ["the relay has died and is started again", *troubles]
    return Scene(
        mysql=made.pair.mysql.endpoint.address,
        kafka=made.pair.kafka.endpoint.address,
        relay="down" if pid is None else f"pid {pid} (start {made.relay.starts})",
        advice=_advice(made),
        troubles=troubles,
    )


def _advice(made: Stage) -> list[tuple[str, str]]:
    pair, relay = made.pair, made.relay
    advice = []
    if relay.pid is not None:
        advice.append((f"kill -9 {relay.pid}", "the relay dies at work: it is started again, and nothing is lost"))
    server = pair.kafka.server
    outage = pair.kafka.outage if server is None else server.outage if server.alive else None
    if outage is not None:
        advice.append((f"{outage[0]}; sleep 15; {outage[1]}", "the broker hangs: its rows wait, no retry is spent"))
    advice.append((f"{shlex.join(command())} --config {made.config} status", "what the relay says of itself"))
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


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Watch orders travel from MySQL to Kafka.")
    parser.add_argument("--seconds", type=float, metavar="N", help="end after N seconds (default: at Ctrl-C)")
    parser.add_argument("--rate", type=float, default=4.0, metavar="N", help="events a second (default: 4)")
    options = parser.parse_args(arguments)
    if options.rate <= 0:
        parser.error("--rate must be above 0")
    return options


if __name__ == "__main__":
    perform(lambda: main(sys.argv[1:]))
