"""A MySQL server run from its binaries: an installed one, or packages unpacked into the cache."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cdc_outbox.testing.services.cache import fetched
from cdc_outbox.testing.services.child import PrivateFolder, finish
from cdc_outbox.testing.services.endpoint import MySQLEndpoint, free_port
from cdc_outbox.testing.services.options import Options, mysql_options
from cdc_outbox.testing.services.packages import release, unpack_closure
from cdc_outbox.testing.services.server import START_DEADLINE, NativeServer
from cdc_outbox.testing.services.words import Say, Unavailable

_PLACE = {
    "bind-address": "127.0.0.1",
    "mysqlx": "OFF",
    "secure-file-priv": "NULL",
    "innodb-use-native-aio": "OFF",  # the kernel's AIO slots run out where many servers start
}
_SHAPING = frozenset({"lower-case-table-names", "innodb-page-size", "innodb-undo-tablespaces"})
"""Options that must be the same when the tables are made and ever after."""


@dataclass(frozen=True)
class MySQLBinaries:
    """How to call mysqld. prefix: what comes before the options; layout: options that name its folders."""

    version: str
    prefix: tuple[str, ...]
    layout: tuple[str, ...] = field(default=())

    def command(self, *options: str) -> list[str]:
        user = ("--user=root",) if os.geteuid() == 0 else ()
        return [*self.prefix, "--no-defaults", *user, *self.layout, *options]


def native_mysql(binaries: MySQLBinaries, options: Options | None = None) -> NativeServer[MySQLEndpoint]:
    """A server on a port and a data folder of its own, not started. options: mysqld's, `gtid_mode="OFF"`."""
    private = PrivateFolder("mysql")
    folder = private.path
    endpoint = MySQLEndpoint("127.0.0.1", free_port(), "root", "")
    chosen = mysql_options(_PLACE, options or {})
    command = binaries.command(
        f"--datadir={folder}/data",
        f"--port={endpoint.port}",
        f"--socket={folder}/mysql.sock",
        f"--pid-file={folder}/mysql.pid",
        f"--tmpdir={folder}",
        *(f"--{name}={value}" for name, value in chosen.items()),
    )
    return NativeServer(
        "mysqld",
        endpoint,
        port=endpoint.port,
        folder=private,
        command=command,
        prepare=lambda: _make_tables(binaries, folder, chosen),
    )


def _make_tables(binaries: MySQLBinaries, folder: Path, options: Mapping[str, str]) -> None:
    """Lay out folder/data: a copy of tables made before, unless an option decides what they look like."""
    if _SHAPING.isdisjoint(options):
        ready = fetched(f"mysql-tables-{binaries.version}", lambda empty: _initialize(binaries, empty, {}))
        shutil.copytree(ready / "data", folder / "data")
        (folder / "data/auto.cnf").unlink(missing_ok=True)  # holds the server_uuid, which is each server's own
    else:
        _initialize(binaries, folder, options)


def _initialize(binaries: MySQLBinaries, folder: Path, options: Mapping[str, str]) -> None:
    shaping = [f"--{name}={value}" for name, value in options.items() if name in _SHAPING]
    command = binaries.command(f"--datadir={folder}/data", "--initialize-insecure", *shaping)
    done = finish(command, deadline=START_DEADLINE)
    if done.returncode:
        raise Unavailable(f"mysqld could not make its tables:\n{done.stderr.strip()[-600:]}")


def installed_binaries() -> MySQLBinaries:
    """The mysqld of this machine, when it is MySQL 8.0 or later. Raises Unavailable."""
    found = shutil.which("mysqld", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Unavailable("no mysqld is installed")
    version = _version((found,))
    if int(version.split(".")[0]) < 8:
        raise Unavailable(f"the installed mysqld is {version}; 8.0 or later is needed")
    return MySQLBinaries(version, (found,))


def packaged_binaries(say: Say) -> MySQLBinaries:
    """MySQL from the package archive of this Debian or Ubuntu, unpacked in the cache. Raises Unavailable."""
    system, codename = release()
    if system == "debian":
        # Debian has MySQL in unstable only; unpacked with its own libc it runs on any release.
        suite, components, names = "sid", "main", ["mysql-server-core"]
    elif system == "ubuntu" and codename:
        suite, components = codename, "main universe"
        names = ["mysql-server-core-8.4", "mysql-server-core-8.0", "mysql-server-core"]
    else:
        raise Unavailable("the package archives of Debian and Ubuntu are used, and this is neither")
    root = fetched(
        f"mysql-{system}-{suite}-{platform.machine()}",
        lambda folder: unpack_closure(names, suite, components, folder, lambda text: say(f"MySQL: {text}")),
    )
    loader = next(iter(sorted(root.glob("usr/lib/*-linux-gnu*/ld-linux*.so.*"))), None)
    server = root / "usr/sbin/mysqld"
    if loader is None or not server.exists():
        raise Unavailable(f"{root} is not whole; remove it and run this again")
    prefix = (str(loader), "--library-path", str(loader.parent), str(server))
    layout = (
        f"--basedir={root}/usr",
        f"--lc-messages-dir={root}/usr/share/mysql",
        f"--plugin-dir={root}/usr/lib/mysql/plugin",
    )
    return MySQLBinaries(_version(prefix), prefix, layout)


def _version(prefix: tuple[str, ...]) -> str:
    shown = finish([*prefix, "--version"], deadline=30).stdout
    if "mariadb" in shown.lower():
        raise Unavailable("the installed mysqld is MariaDB")
    found = re.search(r"Ver (\d+\.\d+\.\d+)", shown)
    if found is None:
        raise Unavailable("mysqld does not run on this machine")
    return found[1]
