"""The order service with everything around it: MySQL, Kafka, relay, inventory, and a page with failure buttons."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn
from buttons import TABLES, add_buttons
from service import order_service
from sqlalchemy import URL, create_engine
from story import Story, Wrong

from cdc_outbox.testing.demo.stage import Stage, perform, say, stage
from cdc_outbox.testing.demo.supervised import Supervised
from cdc_outbox.testing.services.endpoint import free_port, wait_until


def main() -> int:
    options = _options()
    with stage(options.name, consumer=True, keep=options.keep) as shop:
        for statement in TABLES:
            shop.execute(statement)
        shop.start_relay()
        return _serve(shop, options.port or free_port(), check=options.check)


def _serve(shop: Stage, port: int, *, check: bool) -> int:
    at = shop.pair.mysql.endpoint
    url = URL.create("mysql+pymysql", at.user, at.password or None, at.host, at.port, shop.database)
    crash = shop.folder / "crash"
    inventory = Supervised(
        [sys.executable, str(Path(__file__).with_name("inventory.py"))],
        log=shop.folder / "inventory.log",
        environ={
            **os.environ,
            "DATABASE_URL": url.render_as_string(hide_password=False),
            "KAFKA": shop.bootstrap,
            "TOPIC": shop.topic,
            "CRASH_FILE": str(crash),
        },
    )
    engine = create_engine(url)
    app = order_service(engine)
    add_buttons(
        app,
        engine,
        relay=shop.relay,
        inventory=inventory,
        crash=crash,
        bootstrap=shop.bootstrap,
        topic=shop.topic,
    )
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", timeout_graceful_shutdown=2))
    serving = threading.Thread(target=server.run, daemon=True)

    def step() -> None:
        shop.relay.keep_running()
        inventory.keep_running()

    inventory.start()
    serving.start()
    try:
        wait_until(lambda: server.started or not serving.is_alive(), seconds=20)
        if not server.started:
            say(f"Port {port} cannot be used. Choose another with --port.")
            return 2
        if check:
            return _check(f"http://127.0.0.1:{port}", step)
        say(f"Open http://127.0.0.1:{port} and press the buttons; Ctrl-C ends it all.")
        with suppress(KeyboardInterrupt):
            while True:
                step()
                time.sleep(0.2)
        say("\nEnding; nothing is left running.")
        return 0
    finally:
        server.should_exit = True
        serving.join(5)
        inventory.stop()
        engine.dispose()


def _check(url: str, step: Callable[[], None]) -> int:
    try:
        Story(url, step).play()
    except Wrong as error:
        say(f"WRONG: {error}")
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/example order_service", description=__doc__)
    parser.add_argument("--check", action="store_true", help="press every button once, check what comes of it, end")
    parser.add_argument("--port", type=int, help="of the page (default: a free one)")
    parser.add_argument("--name", default=f"orders_{secrets.token_hex(4)}", help="of the database that is made")
    parser.add_argument("--keep", action="store_true", help="leave database and topic on services that are yours")
    return parser.parse_args()


if __name__ == "__main__":
    perform(main)
