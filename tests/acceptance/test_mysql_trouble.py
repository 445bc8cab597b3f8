"""MySQL goes on for others and not for us: sessions killed, disks full, a relay that was frozen for too long."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
import pytest

from cdc_outbox.mysql.leadership import lock_name
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from tests.harness import recovery
from tests.harness.judge import Judge
from tests.harness.load import Load, no_retry_spent
from tests.harness.proxy import Proxy
from tests.harness.recovery import Note
from tests.harness.world import World, wait_until

if TYPE_CHECKING:
    from tests.conftest import MakeMySQL

TABLE_FULL = 1114


def leader_session(world: World) -> int | None:
    """The connection that holds the leader lock."""
    found: int | None = world.execute("SELECT IS_USED_LOCK(%s)", lock_name(world.database, world.name))[0][0]
    return found


def test_each_session_killed_in_turn(world: World, mysql_server: MySQLEndpoint) -> None:
    """The one that reads the binlog, the one that holds the lock, and each of those that write."""
    with Proxy(mysql_server.host, mysql_server.port) as proxy:

        def sessions() -> dict[int, str]:
            """The relay's, oldest first, with what each does."""
            rows = world.execute("SELECT id, command, host FROM information_schema.processlist ORDER BY id")
            ports = {str(port) for port in proxy.ports}
            return {id: command for id, command, host in rows if host.rpartition(":")[2] in ports}

        def others() -> list[int]:
            return [id for id, command in sessions().items() if "Dump" not in command and id != leader_session(world)]

        relay = world.start(mysql={"host": proxy.host, "port": proxy.port})
        load = Load(world)
        turns: list[Callable[[], int | None]] = [
            lambda: next(id for id, command in sessions().items() if "Dump" in command),
            lambda: leader_session(world),
            lambda: others()[0],
            lambda: others()[-1],
        ]
        for turn in turns:
            session = turn()
            world.execute("KILL %s", session)
            wait_until(lambda gone=session: gone not in sessions(), "the session is gone")
            load.flow(50)
        load.check()
        assert relay.running
        assert relay.stop() == 0


def test_a_relay_frozen_for_longer_than_its_lead(world: World, record_property: Note) -> None:
    """Nobody took over meanwhile; it must not go on as if it still led."""
    relay = world.start(leadership_timeout="3s")
    load = Load(world)
    (before,) = world.execute("SELECT epoch FROM cdc_outbox_checkpoint")[0]
    relay.pause()
    wait_until(lambda: leader_session(world) is None, "the server freed its lock")
    load.pile_up(50)
    assert recovery.measure(world, relay.resume, record_property) < recovery.AT_MOST
    assert "leadership_lost" in relay.events()
    load.check()
    (after,) = world.execute("SELECT epoch FROM cdc_outbox_checkpoint")[0]
    assert after > before


def test_writes_that_hang_are_an_outage(
    make_world: Callable[..., World], make_mysql: MakeMySQL, record_property: Note
) -> None:
    """A backup holds its lock, or a disk is full: what only reads is answered, and must not be taken for recovery."""
    world = make_world(mysql=make_mysql().endpoint)
    relay = world.start()
    load = Load(world)
    ((soon,),) = world.execute("SELECT NOW() + INTERVAL 3 SECOND")
    world.insert("later", next_retry_at=soon)  # all else may be written before the lock is had
    world.execute("FLUSH TABLES WITH READ LOCK")
    relay.wait_for("hold")
    led: set[int | None] = set()

    def tried_again() -> bool:
        led.add(leader_session(world))
        return len(led - {None}) > 2

    wait_until(tried_again, "the lock taken again and again")
    assert "recovered" not in relay.events()
    assert no_retry_spent(world)
    assert recovery.measure(world, lambda: world.execute("UNLOCK TABLES"), record_property) < recovery.AT_MOST
    load.check()
    assert relay.events().count("recovered") == 1


# -- disks ------------------------------------------------------------------------------------------------------


def fill(world: World, count: int) -> None:
    """Until there is no room for so many rows more."""
    rows = ", ".join(["(REPEAT('x', 6000))"] * count)
    with pytest.raises(pymysql.MySQLError) as full:
        while True:
            world.execute(f"INSERT INTO other (pad) VALUES {rows}")
    assert full.value.args[0] == TABLE_FULL


@pytest.mark.long
def test_a_full_tablespace_is_waited_for(
    make_world: Callable[..., World], make_mysql: MakeMySQL, record_property: Note
) -> None:
    """Statuses cannot be written, since the indexes they are in need room (error 1114)."""
    server = make_mysql(innodb_file_per_table="OFF", innodb_data_file_path="ibdata1:12M:autoextend:max:32M")
    world = make_world(mysql=server.endpoint)
    relay = world.start()
    world.wait_sent(world.insert("first"))
    world.execute("CREATE TABLE other (id BIGINT AUTO_INCREMENT PRIMARY KEY, pad VARCHAR(6000))")
    relay.pause()
    rows = [(f"e{number}", f"a{number % 7}") for number in range(4000)]
    with world.sql() as cursor:
        cursor.executemany(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            " VALUES (%s, 'order', %s, 'OrderPlaced', '{}')",
            rows,
        )
    for count in (100, 1):
        fill(world, count)
    relay.resume()
    relay.wait_for("hold")
    assert str(TABLE_FULL) in relay.log
    assert no_retry_spent(world)
    assert recovery.measure(world, lambda: world.execute("DROP TABLE other"), record_property) < recovery.AT_MOST
    world.wait_settled()
    commits: dict[str, list[str]] = defaultdict(list)
    for event_id, aggregate in rows:
        commits[aggregate].append(event_id)
    judge = Judge(world)
    judge.check_complete(commits)
    judge.check_order(commits)
    assert relay.running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs to be root, to mount a disk that can be filled: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.long
def test_a_full_disk_under_the_binlog_is_waited_for(
    make_world: Callable[..., World], make_mysql: MakeMySQL, small_disk: Path
) -> None:
    """MySQL lets every commit wait, the relay's too, and looks once a minute whether there is room."""
    server = make_mysql(log_bin=f"{small_disk}/binlog")
    world = make_world(mysql=server.endpoint)
    relay = world.start()
    load = Load(world)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    relay.wait_for("hold")
    assert load.writer.failures == []
    filler.unlink()
    load.flow(200)
    load.check()
    assert relay.events().count("recovered") == 1
