"""python -m tests.soak: run a soak on servers of its own, and write its report with --page."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pymysql

from cdc_outbox.testing.services import providers
from tests.harness.world import World
from tests.soak.soak import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="the faults of an earlier soak again")
    parser.add_argument("--rate", type=float, default=100.0, help="transactions a second")
    parser.add_argument("--every", type=float, nargs=2, default=(5.0, 30.0), metavar="S", help="pause between faults")
    parser.add_argument("--keep-relays", action="store_true", help="end no relay: each lives, and may grow, throughout")
    parser.add_argument("--page", type=Path, default=None, help="where the report goes, docs/soak.md for example")
    wanted = parser.parse_args()
    seed = wanted.seed if wanted.seed is not None else int(time.time())
    mysql, kafka = providers.make_mysql({}, say), providers.make_kafka({}, say)
    try:
        with tempfile.TemporaryDirectory() as folder:
            server = mysql.endpoint
            with pymysql.connect(
                host=server.host, port=server.port, user=server.user, password=server.password
            ) as connection:
                connection.cursor().execute("CREATE DATABASE soak CHARACTER SET utf8mb4")
            world = World(
                host=server.host,
                port=server.port,
                user=server.user,
                password=server.password,
                database="soak",
                bootstrap=kafka.endpoint.bootstrap,
                prefix="soak.",
                folder=Path(folder),
            )
            world.init()
            with closing(Soak(world, mysql, kafka, say)) as soak:
                report = soak.run(
                    seed=seed,
                    seconds=wanted.minutes * 60,
                    every=tuple(wanted.every),
                    rate=wanted.rate,
                    keep_relays=wanted.keep_relays,
                )
            world.close_session()
        title = "Soak with relays that live throughout" if wanted.keep_relays else "Soak"
        page = report.page(shlex.join(["python", "-m", "tests.soak", *sys.argv[1:]]), title)
        print(page)
        if wanted.page is not None:
            wanted.page.write_text(page)
        return 0
    except AssertionError as broken:
        say(f"broken with --seed {seed}: {broken}")
        return 1
    finally:
        mysql.remove()
        kafka.remove()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
