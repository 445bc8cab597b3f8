"""An encrypted binlog is sent in the clear: all of it is read, from any place, also after a change of the key."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.mysql_native import MySQLBinaries, native_mysql, packaged_binaries
from cdc_outbox.testing.services.server import Server
from cdc_outbox.testing.services.words import Unavailable
from tests.integration.binlog_tail import Database, Tail, setting


def with_keyring(binaries: MySQLBinaries, folder: Path) -> MySQLBinaries:
    """The same server, with a keyring. Which components it loads stands beside its binary, where they find their
    settings, beside theirs: so both get a folder of their own."""
    server = Path(binaries.prefix[-1])
    plugins = next(Path(option.partition("=")[2]) for option in binaries.layout if option.startswith("--plugin-dir"))
    here = folder / "mysqld"
    here.symlink_to(server)
    (folder / "mysqld.my").write_text(json.dumps({"components": "file://component_keyring_file"}))
    (folder / "component_keyring_file.so").symlink_to(plugins / "component_keyring_file.so")
    (folder / "component_keyring_file.cnf").write_text(json.dumps({"path": f"{folder}/keys", "read_only": False}))
    layout = [option for option in binaries.layout if not option.startswith("--plugin-dir")]
    return MySQLBinaries(binaries.version, (*binaries.prefix[:-1], str(here)), (*layout, f"--plugin-dir={folder}"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server[MySQLEndpoint]]:
    try:
        binaries = packaged_binaries(lambda text: print(text, file=sys.stderr))
    except Unavailable as error:
        pytest.skip(f"a server whose folders can be chosen is needed: {error}")
    made = native_mysql(with_keyring(binaries, tmp_path), {"binlog_encryption": "ON"})
    made.start()
    yield made
    made.remove()


def test_encrypted_binlogs(server: Server[MySQLEndpoint]) -> None:
    outbox = Database(server.endpoint, "shop")
    assert {row[2] for row in outbox.execute("SHOW BINARY LOGS")} == {"Yes"}
    by_file, by_gtid = outbox.position(), outbox.gtid_position()
    outbox.insert("a", payload='{"k": "secret-word"}')
    outbox.execute("ALTER INSTANCE ROTATE BINLOG MASTER KEY")
    outbox.insert("b")
    between = outbox.position()
    outbox.insert("c")
    with setting(outbox, "binlog_encryption", "OFF"):
        outbox.insert("d")
    outbox.insert("e")
    for start, expected in ((by_file, "abcde"), (by_gtid, "abcde"), (between, "cde")):
        with Tail(outbox, start) as tail:
            tail.wait(lambda tail=tail: "e" in tail.event_ids)
            tail.wait_for_position(outbox.gtid_position() if start is by_gtid else outbox.position())
        assert tail.event_ids == list(expected)
    outbox.close()
