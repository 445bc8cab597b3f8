"""A MariaDB server run from its binaries: an installed one, or packages unpacked into the cache."""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path

from cdc_outbox.testing.services.cache import fetched
from cdc_outbox.testing.services.child import PrivateFolder, finish
from cdc_outbox.testing.services.endpoint import MySQLEndpoint, free_port
from cdc_outbox.testing.services.mysql_native import MySQLBinaries
from cdc_outbox.testing.services.options import Options, mariadb_options
from cdc_outbox.testing.services.packages import release, unpack_closure
from cdc_outbox.testing.services.server import START_DEADLINE, NativeServer
from cdc_outbox.testing.services.words import Say, Unavailable

_PLACE = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "ON",
    "innodb-use-native-aio": "OFF",  # the kernel's AIO slots run out where many servers start
}
_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")


def native_mariadb(binaries: MySQLBinaries, options: Options | None = None) -> NativeServer[MySQLEndpoint]:
    """A server on a port and a data folder of its own, not started. options: mariadbd's, `binlog_checksum="NONE"`."""
    private = PrivateFolder("mariadb")
    folder = private.path
    endpoint = MySQLEndpoint("127.0.0.1", free_port(), "root", "")
    command = binaries.command(
        f"--datadir={folder}/data",
        f"--port={endpoint.port}",
        f"--socket={folder}/mariadb.sock",
        f"--pid-file={folder}/mariadb.pid",
        f"--tmpdir={folder}",
        *(f"--{name}={value}" for name, value in mariadb_options(_PLACE, options or {}).items()),
    )
    return NativeServer(
        "mariadbd",
        endpoint,
        port=endpoint.port,
        folder=private,
        command=command,
        prepare=lambda: _copy_tables(binaries, folder),
    )


def _copy_tables(binaries: MySQLBinaries, folder: Path) -> None:
    ready = fetched(f"mariadb-tables-{binaries.version}", lambda empty: _initialize(binaries, empty))
    shutil.copytree(ready / "data", folder / "data")


def _initialize(binaries: MySQLBinaries, folder: Path) -> None:
    """What mariadb-install-db does, without a shell: the system tables, and root without a password."""
    texts = next(Path(one.partition("=")[2]) for one in binaries.layout if one.startswith("--lc-messages-dir"))
    (folder / "data/mysql").mkdir(parents=True)
    parts = ["USE mysql;", "SET @auth_root_socket = NULL, @skip_auth_anonymous = 1;"]
    parts += [(texts / name).read_text(errors="replace") for name in _SYSTEM_TABLES]
    command = binaries.command(f"--datadir={folder}/data", f"--tmpdir={folder}", "--bootstrap", "--skip-networking")
    done = finish(command, deadline=START_DEADLINE, given="\n".join(parts) + "\n")
    if done.returncode:
        raise Unavailable(f"mariadbd could not make its tables:\n{done.stderr.strip()[-600:]}")


def installed_mariadb() -> MySQLBinaries:
    """The mariadbd of this machine. Raises Unavailable."""
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Unavailable("no mariadbd is installed")
    share = next((path for path in map(Path, ("/usr/share/mysql", "/usr/share/mariadb")) if path.is_dir()), None)
    if share is None:
        raise Unavailable(f"the files that belong to {found} are not where they are looked for")
    return MySQLBinaries(_version((found,)), (found,), (f"--lc-messages-dir={share}",))


def packaged_mariadb(say: Say) -> MySQLBinaries:
    """MariaDB from the package archive of this Debian or Ubuntu, unpacked in the cache. Raises Unavailable."""
    system, codename = release()
    if system not in {"debian", "ubuntu"} or not codename:
        raise Unavailable("the package archives of Debian and Ubuntu are used, and this is neither")
    components = "main" if system == "debian" else "main universe"
    root = fetched(
        f"mariadb-{system}-{codename}-{platform.machine()}",
        lambda folder: unpack_closure(
            ["mariadb-server-core"], codename, components, folder, lambda text: say(f"MariaDB: {text}")
        ),
    )
    loader = next(iter(sorted([*root.glob("lib/*-linux-gnu*/ld-*"), *root.glob("usr/lib/*-linux-gnu*/ld-*")])), None)
    server = root / "usr/sbin/mariadbd"
    if loader is None or not server.exists():
        raise Unavailable(f"{root} is not whole; remove it and run this again")
    libraries = ":".join(str(root / top / loader.parent.name) for top in ("lib", "usr/lib"))
    prefix = (str(loader), "--library-path", libraries, str(server))
    layout = (f"--basedir={root}/usr", f"--lc-messages-dir={root}/usr/share/mysql", f"--plugin-dir={root}/plugin")
    return MySQLBinaries(_version(prefix), prefix, layout)


def _version(prefix: tuple[str, ...]) -> str:
    shown = finish([*prefix, "--version"], deadline=30).stdout
    found = re.search(r"Ver (\d+\.\d+\.\d+)-MariaDB", shown)
    if found is None:
        raise Unavailable("mariadbd does not run on this machine")
    return found[1]
