"""Least privilege: every command with exactly the grants it needs, and what it says when one of them is taken away."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
from confluent_kafka import Producer

from cdc_outbox.cli import app, main
from tests.harness.process import RelayProcess
from tests.harness.world import World

ROOT = Path(__file__).parents[2]

CLIENT, SLAVE = "REPLICATION CLIENT ON *.*", "REPLICATION SLAVE ON *.*"
OUTBOX, CHECKPOINT = "`{database}`.`outbox_event`", "`{database}`.`cdc_outbox_checkpoint`"


ARCHIVE = "`{database}`.`outbox_event_archive`"
ARCHIVE_DDL = re.sub(r"--.*", "", (ROOT / "schema" / "archive.sql").read_text("utf-8"))

ROWS = (
    "DELETE FROM outbox_event",
    "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, status, next_retry_at,"
    " created_at) VALUES ('failed', 'order', 'a', 'T', '{}', 3, NOW() + INTERVAL 1 HOUR, NOW()),"
    " ('dead', 'order', 'b', 'T', '{}', 3, NULL, NOW()),"
    " ('sent', 'order', 'c', 'T', '{}', 2, NULL, NOW() - INTERVAL 9 DAY)",
)
"""One of each that the commands for single events and for old ones look at."""


@dataclass(frozen=True)
class Needs:
    """Words of a command, what its account must be granted, each by itself, and what is done before each run."""

    words: tuple[str, ...]
    grants: tuple[str, ...]
    before: tuple[str, ...] = ()


COMMANDS = {
    "start": Needs(
        ("start",),
        (
            CLIENT,
            SLAVE,
            f"SELECT ON {OUTBOX}",
            f"UPDATE ON {OUTBOX}",
            f"SELECT ON {CHECKPOINT}",
            f"INSERT ON {CHECKPOINT}",
            f"UPDATE ON {CHECKPOINT}",
        ),
    ),
    "doctor": Needs(
        ("doctor",),
        (
            CLIENT,
            SLAVE,
            f"SELECT ON {OUTBOX}",
            f"UPDATE ON {OUTBOX}",
            f"SELECT ON {CHECKPOINT}",
            f"INSERT ON {CHECKPOINT}",
            f"UPDATE ON {CHECKPOINT}",
        ),
    ),
    "status": Needs(("status",), (f"SELECT ON {OUTBOX}", f"SELECT ON {CHECKPOINT}")),
    "checkpoint show": Needs(("checkpoint", "show"), (f"SELECT ON {CHECKPOINT}",)),
    "checkpoint set": Needs(
        ("checkpoint", "set", "{position}", "--yes"),
        (f"SELECT ON {CHECKPOINT}", f"INSERT ON {CHECKPOINT}", f"UPDATE ON {CHECKPOINT}"),
    ),
    "checkpoint reset": Needs(
        ("checkpoint", "reset", "--yes"),
        (f"SELECT ON {CHECKPOINT}", f"INSERT ON {CHECKPOINT}", f"UPDATE ON {CHECKPOINT}"),
    ),
    "emit": Needs(("emit",), (f"INSERT ON {OUTBOX}",)),
    "init": Needs(
        ("init",),
        ("CREATE ON `{database}`.*",),
        ("DROP TABLE IF EXISTS outbox_event, cdc_outbox_checkpoint",),
    ),
    "pause": Needs(
        ("pause",),
        (f"SELECT ON {CHECKPOINT}", f"INSERT ON {CHECKPOINT}", f"UPDATE ON {CHECKPOINT}"),
        ("DELETE FROM cdc_outbox_checkpoint",),
    ),
    "resume": Needs(
        ("resume",),
        (f"SELECT ON {CHECKPOINT}", f"INSERT ON {CHECKPOINT}", f"UPDATE ON {CHECKPOINT}"),
        (
            "REPLACE INTO cdc_outbox_checkpoint (name, shard, epoch, owner, server_uuid, paused, updated_at)"
            " VALUES ('{name}', 0, 1, '', '', 1, NOW(6))",
        ),
    ),
    "events list": Needs(("events", "list"), (f"SELECT ON {OUTBOX}",), ROWS),
    "events show": Needs(("events", "show", "dead"), (f"SELECT ON {OUTBOX}",), ROWS),
    "events retry": Needs(("events", "retry", "failed", "--yes"), (f"SELECT ON {OUTBOX}", f"UPDATE ON {OUTBOX}"), ROWS),
    "events skip": Needs(("events", "skip", "failed", "--yes"), (f"SELECT ON {OUTBOX}", f"UPDATE ON {OUTBOX}"), ROWS),
    "events purge": Needs(("events", "purge", "dead", "--yes"), (f"SELECT ON {OUTBOX}", f"DELETE ON {OUTBOX}"), ROWS),
    "events replay": Needs(
        ("events", "replay", "gone"), (f"SELECT ON {OUTBOX}", f"INSERT ON {OUTBOX}"), ("DELETE FROM outbox_event",)
    ),
    "archive": Needs(
        ("archive", "--older-than", "7d"),
        (f"SELECT ON {OUTBOX}", f"DELETE ON {OUTBOX}", f"INSERT ON {ARCHIVE}"),
        ROWS,
    ),
}

WITHOUT_MYSQL = {"tail"}


def put_letter(world: World, event_id: str) -> None:
    """A dead letter of an event that has no row any more."""
    said = {"aggregate_type": "order", "aggregate_id": "a1", "event_type": "Paid", "original_topic": world.topic}
    said = {**said, "event_id": event_id, "error_class": "skipped"}
    headers: Any = {name: one.encode() for name, one in said.items()}
    producer = Producer({"bootstrap.servers": world.bootstrap})
    producer.produce(world.dead_letter_topic, b"{}", b"a1", headers=headers)
    assert producer.flush(30) == 0


@pytest.fixture
def account(world: World) -> Iterator[str]:
    name = f"u_{uuid.uuid4().hex[:10]}"
    world.execute(f"CREATE USER {name} IDENTIFIED BY 'least'")
    yield name
    world.execute(f"DROP USER {name}")


class Tried:
    """Runs a command as an account that has these grants and no other."""

    def __init__(self, world: World, account: str, needs: Needs, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._world = world
        self._account = account
        self._needs = needs
        for statement in filter(str.strip, ARCHIVE_DDL.split(";")):
            world.execute(statement)
        gtids = str(world.execute("SELECT @@global.gtid_executed")[0][0]).replace("\n", "")
        self._words = [word.format(position=gtids) for word in needs.words]
        self._config = world.config(
            mysql={"user": account, "password": "least"},
            http=None,
        )

    def grant(self, *grants: str) -> None:
        self._world.execute(f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {self._account}")
        for one in grants:
            self._world.execute(f"GRANT {one.format(database=self._world.database)} TO {self._account}")
        for statement in self._needs.before:
            self._world.execute(statement.replace("{name}", self._world.name))

    def run(self) -> tuple[int, str]:
        """Exit code and all output; a relay that leads and sends is stopped."""
        if self._words != ["start"]:
            with pytest.raises(SystemExit) as ended:
                main(["--config", str(self._config), *self._words])
            return int(ended.value.code or 0), "".join(self._capsys.readouterr())
        relay = RelayProcess(self._config)
        try:
            if relay.wait_for_any("leader", "ended") == "leader":
                self._world.wait_sent(self._world.insert("a1"))
                relay.stop()
            return relay.wait(), relay.log
        finally:
            relay.kill()


@pytest.fixture
def tried(
    world: World, account: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Needs], Tried]:
    for name in [one for one in os.environ if one.startswith("CDC_OUTBOX_")]:
        monkeypatch.delenv(name)
    return lambda needs: Tried(world, account, needs, capsys)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_command_works_with_its_grants_and_names_the_one_that_is_missing(
    tried: Callable[[Needs], Tried], world: World, name: str
) -> None:
    needs = COMMANDS[name]
    if name == "events replay":
        put_letter(world, "gone")
    command = tried(needs)
    command.grant(*needs.grants)
    code, said = command.run()
    assert code == 0, said
    for missing in needs.grants:
        command.grant(*(one for one in needs.grants if one != missing))
        code, said = command.run()
        assert code == 2, f"without {missing}: {said}"
        privilege, _, on = missing.format(database=world.database).partition(" ON ")
        grants = re.findall(r"GRANT ([A-Z, ]+) ON (\S+) TO", said)
        assert any(privilege in given.split(", ") and there == on for given, there in grants), (
            f"without {missing} no GRANT of it is named: {said}"
        )
        assert "least" not in said


def test_every_command_is_here() -> None:
    def names(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
        for word, inner in command.commands.items():
            if getattr(inner, "commands", None):
                yield from names(inner, (*words, word))
            else:
                yield " ".join((*words, word))

    assert set(names(typer.main.get_command(app))) - WITHOUT_MYSQL == set(COMMANDS)


def test_the_page_says_the_same() -> None:
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|$", page, flags=re.MULTILINE))
    documented = {word: text for cell, text in rows.items() for word in re.findall(r"`([a-z ]+)`", cell)}
    assert set(documented) - WITHOUT_MYSQL == set(COMMANDS)
    for name, needs in COMMANDS.items():
        if name == "doctor":
            assert documented[name].startswith("the same")
            continue
        wanted = {one.split(" ON ")[0] for one in needs.grants}
        found = set(re.findall(r"REPLICATION [A-Z]+|SELECT|INSERT|UPDATE|DELETE|CREATE", documented[name]))
        assert found == wanted, name
