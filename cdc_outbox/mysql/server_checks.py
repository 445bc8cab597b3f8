"""What a server's variables mean for the relay. Pure: variables in, findings out; preflight asks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from cdc_outbox.mysql.findings import Finding
from cdc_outbox.mysql.flavour import is_mariadb

OLDEST = (8, 0, 1)
"""The first version with binlog_row_metadata and original commit times in the binlog."""
OLDEST_MARIADB = (10, 6)
"""The first version with SKIP LOCKED."""
SHORTEST_RETENTION = 3 * 86_400
"""Seconds. A relay that is down over a long weekend should still find its place."""

VARIABLES = (
    "version",
    "version_comment",
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_checksum",
    "binlog_order_commits",
    "binlog_transaction_compression",
    "log_bin_compress",
    "binlog_expire_logs_seconds",
    "binlog_expire_logs_auto_purge",
    "server_id",
    "gtid_mode",
    "log_replica_updates",
    "log_slave_updates",
    "replica_preserve_commit_order",
    "slave_preserve_commit_order",
    "replica_parallel_workers",
    "slave_parallel_workers",
    "sync_binlog",
    "innodb_flush_log_at_trx_commit",
    "rpl_semi_sync_source_enabled",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_source_wait_point",
    "rpl_semi_sync_master_wait_point",
    "group_replication_single_primary_mode",
    "wsrep_on",
    "read_only",
    "super_read_only",
    "innodb_read_only",
)
"""Not every server has every one; a check whose variable is absent says nothing or takes the old default."""

_OTHER_SERVERS = ("TiDB", "OceanBase", "Vitess", "SingleStore")
_POOLING = ("ProxySQL", "MaxScale")


class Variables:
    """Global variables by name; names that this server does not have are absent."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in values.items()}

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def number(self, name: str) -> int | None:
        value = self._values.get(name, "")
        return int(value) if value.isdigit() else None

    def on(self, name: str) -> bool:
        return self._values.get(name, "").upper() in {"ON", "1", "YES", "TRUE"}

    def has(self, name: str) -> bool:
        return name in self._values


def server_kind(variables: Variables, greeting: str) -> Finding:
    """Is this MySQL or MariaDB itself, with what we need? greeting: the version that the handshake named."""
    version, comment = variables.text("version"), variables.text("version_comment")
    said = f"{version} ({comment})" if comment else version
    everything = f"{said} {greeting}".lower()
    for proxy in _POOLING:
        if proxy.lower() in everything:
            return pooling_proxy(f"{proxy} answers: {said}")
    for other in _OTHER_SERVERS:
        if other.lower() in everything:
            return Finding(
                "server-kind",
                "error",
                f"the server is {other} {said}",
                "only the binlogs of MySQL and MariaDB can be read",
                "mysql.host: a MySQL server, 8.0 or newer",
            )
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if is_mariadb(version):
        return _mariadb_kind(said, numbers)
    if numbers < OLDEST:
        return Finding(
            "server-kind",
            "error",
            f"the server is MySQL {version}",
            "it has no SKIP LOCKED, and its binlog has neither column names nor commit times",
            "mysql.host: a MySQL server, 8.0 or newer",
        )
    return Finding("server-kind", "ok", f"MySQL {said}")


def _mariadb_kind(said: str, numbers: tuple[int, ...]) -> Finding:
    if numbers < OLDEST_MARIADB:
        return Finding(
            "server-kind",
            "error",
            f"the server is MariaDB {said}",
            "it has no SKIP LOCKED, which the relay needs beside the applications' locks",
            "mysql.host: a MariaDB server, 10.6 or newer",
        )
    return Finding("server-kind", "ok", f"MariaDB {said}, read by file and offset")


def pooling_proxy(found: str) -> Finding:
    return Finding(
        "proxy",
        "error",
        found,
        "the leader lock belongs to one server session; a proxy that shares sessions loses it in silence",
        "mysql.host, mysql.port: the server's own address (a proxy that forwards TCP connections is fine)",
    )


def proxy(greeting_id: int, sessions: Sequence[tuple[str, int]]) -> Finding:
    """greeting_id: the handshake's connection id; sessions: (server_uuid, CONNECTION_ID()), repeatedly."""
    if len(set(sessions)) > 1:
        return pooling_proxy("one connection was served by several server sessions")
    # The handshake carries the lower 32 bits.
    if any(connection_id % 2**32 != greeting_id % 2**32 for _, connection_id in sessions):
        return pooling_proxy("the connection id of the handshake is not the server's CONNECTION_ID()")
    return Finding("proxy", "ok", "the server answers directly")


def one_server(uuids: Sequence[str]) -> Finding | None:
    """uuids: @@server_uuid as seen through two connections."""
    if len(set(uuids)) == 1:
        return None
    return Finding(
        "proxy",
        "error",
        f"two connections reached different servers ({', '.join(sorted(set(uuids)))})",
        "the lock, the statuses and the binlog must be those of one primary",
        "mysql.host: an address that always leads to the primary",
    )


def cluster(variables: Variables) -> Finding | None:
    """Several writable members: commit order and GET_LOCK are not the same on all of them."""
    if variables.on("wsrep_on"):
        found, fix = (
            "wsrep_on = ON: a Galera cluster",
            "mysql.host: a MySQL primary that is not in a Galera cluster",
        )
    elif variables.has("group_replication_single_primary_mode") and not variables.on(
        "group_replication_single_primary_mode"
    ):
        found = "group_replication_single_primary_mode = OFF: a multi-primary group"
        fix = "SELECT group_replication_switch_to_single_primary_mode();"
    else:
        return None
    return Finding("cluster", "error", found, "locks and commit order are not shared between primaries", fix)


def read_only(variables: Variables) -> Finding:
    on = [name for name in ("read_only", "super_read_only", "innodb_read_only") if variables.on(name)]
    if not on:
        return Finding("read-only", "ok", "the server takes writes")
    return Finding(
        "read-only",
        "error",
        f"{', '.join(on)} = ON",
        "statuses cannot be written on a replica; `start` waits until the server takes writes",
        "mysql.host: the primary's address; on the primary itself: SET GLOBAL read_only = OFF;",
        heals=True,
    )


def binlog(
    variables: Variables, server_id: int | None, section: str = "mysql", *, transient: bool = False
) -> Iterator[Finding]:
    """server_id: what the relay calls itself there, as this section of the settings has it. transient: rows are, and
    cannot be read from the table."""
    if not variables.on("log_bin"):
        yield Finding(
            "log-bin",
            "error",
            "log_bin = OFF",
            "without a binlog there is nothing to read",
            "my.cnf: [mysqld] log_bin = binlog — and restart the server",
        )
        return
    yield Finding("log-bin", "ok", "log_bin = ON")
    yield _format(variables)
    yield _row_image(variables, transient=transient)
    yield _row_metadata(variables)
    yield _checksum(variables)
    yield _order_of_commits(variables)
    yield _compression(variables)
    yield _retention(variables)
    yield _server_id(variables, server_id, section)
    yield _gtid_mode(variables)


def _format(variables: Variables) -> Finding:
    value = variables.text("binlog_format", "ROW").upper()  # newer servers know rows only
    if value == "ROW":
        return Finding("binlog-format", "ok", "binlog_format = ROW")
    return Finding(
        "binlog-format",
        "error",
        f"binlog_format = {value}",
        "inserts arrive as statements, without their values",
        "SET PERSIST binlog_format = 'ROW';  -- and reconnect the applications",
    )


def _row_image(variables: Variables, *, transient: bool) -> Finding:
    value = variables.text("binlog_row_image", "FULL").upper()
    if value == "FULL":
        return Finding("binlog-row-image", "ok", "binlog_row_image = FULL")
    return Finding(
        "binlog-row-image",
        "error" if transient else "warning",
        f"binlog_row_image = {value}",
        "outbox.rows is transient, and columns filled by their defaults are not in the binlog: there will be no row to"
        " read them from"
        if transient
        else "columns filled by their defaults are not in the binlog: such rows are read from the table by id,"
        " slower, and as they are by then",
        "SET PERSIST binlog_row_image = 'FULL';" + ("  -- and reconnect the applications" if transient else ""),
    )


def _row_metadata(variables: Variables) -> Finding:
    value = variables.text("binlog_row_metadata", "MINIMAL").upper()
    if value == "FULL":
        return Finding("binlog-row-metadata", "ok", "binlog_row_metadata = FULL")
    if value == "NO_LOG":  # MariaDB's default
        return Finding(
            "binlog-row-metadata",
            "error",
            "binlog_row_metadata = NO_LOG",
            "the binlog says neither what columns are called nor which numbers are unsigned",
            "SET PERSIST binlog_row_metadata = 'FULL';",
        )
    return Finding(
        "binlog-row-metadata",
        "warning",
        f"binlog_row_metadata = {value}",
        "column names are not in the binlog but taken from the table as it is now:"
        " after an ALTER TABLE, rows written before it stop the relay",
        "SET PERSIST binlog_row_metadata = 'FULL';",
    )


def _checksum(variables: Variables) -> Finding:
    value = variables.text("binlog_checksum", "NONE").upper()
    if value == "CRC32":
        return Finding("binlog-checksum", "ok", "binlog_checksum = CRC32")
    return Finding(
        "binlog-checksum",
        "warning",
        f"binlog_checksum = {value}",
        "a damaged event is not noticed and may be published",
        "SET PERSIST binlog_checksum = 'CRC32';",
    )


def _order_of_commits(variables: Variables) -> Finding:
    if not variables.has("binlog_order_commits") or variables.on("binlog_order_commits"):
        return Finding("binlog-order-commits", "ok", "transactions become visible in the binlog's order")
    return Finding(
        "binlog-order-commits",
        "warning",
        "binlog_order_commits = OFF",
        "a transaction may become visible before one that the binlog has earlier: where the table is swept (first"
        " start, lost position) events of one aggregate may be published in the wrong order",
        "SET PERSIST binlog_order_commits = ON;",
    )


def _compression(variables: Variables) -> Finding:
    if variables.on("log_bin_compress"):
        return Finding(
            "binlog-compression",
            "error",
            "log_bin_compress = ON",
            "MariaDB's compressed events are not supported: the first one would stop the relay",
            "SET PERSIST log_bin_compress = OFF;",
        )
    if not variables.on("binlog_transaction_compression"):
        return Finding("binlog-compression", "ok", "binlog_transaction_compression = OFF")
    found = "binlog_transaction_compression = ON: the relay inflates all transactions, those of other tables too"
    return Finding("binlog-compression", "ok", found)


def _retention(variables: Variables) -> Finding:
    seconds = variables.number("binlog_expire_logs_seconds")
    purges = not variables.has("binlog_expire_logs_auto_purge") or variables.on("binlog_expire_logs_auto_purge")
    if not seconds or not purges:
        return Finding("binlog-retention", "ok", "binlogs are kept until somebody purges them")
    found = f"binlog_expire_logs_seconds = {seconds} ({seconds / 86_400:.1f} days)"
    if seconds >= SHORTEST_RETENTION:
        return Finding("binlog-retention", "ok", found)
    return Finding(
        "binlog-retention",
        "warning",
        found,
        "a relay that is down for longer has to search the table instead, and duplicates are possible",
        "SET PERSIST binlog_expire_logs_seconds = 604800;",
    )


def _server_id(variables: Variables, ours: int | None, section: str) -> Finding:
    theirs = variables.number("server_id") or 0
    if theirs == 0:
        return Finding(
            "server-id",
            "error",
            "server_id = 0",
            "a server without an id gives its binlog to nobody",
            "SET PERSIST server_id = 1;",
        )
    if theirs == ours:
        return Finding(
            "server-id",
            "error",
            f"{section}.server_id = {ours} is the server's own server_id",
            "the relay reads as a replica and needs an id of its own",
            f"{section}: {{server_id: null}}  # a random one for each process",
        )
    return Finding("server-id", "ok", f"server_id = {theirs}")


def _gtid_mode(variables: Variables) -> Finding:
    if not variables.has("gtid_mode"):
        return Finding(
            "gtid-mode",
            "ok",
            "MariaDB's GTIDs are not used: the position is file and offset, and is lost with a change of the primary",
        )
    value = variables.text("gtid_mode").upper()
    if value == "ON":
        return Finding("gtid-mode", "ok", "gtid_mode = ON: the position survives a change of the primary")
    if value == "OFF":
        return Finding(
            "gtid-mode",
            "ok",
            "gtid_mode = OFF: the position is file and offset, and is lost with a change of the primary",
        )
    steps = {"OFF_PERMISSIVE": ["ON_PERMISSIVE", "ON"]}.get(value, ["ON"])
    return Finding(
        "gtid-mode",
        "warning",
        f"gtid_mode = {value}",
        "half a change: the position is file and offset, and is lost with a change of the primary",
        "SET PERSIST enforce_gtid_consistency = 'ON'; "
        + " ".join(f"SET PERSIST gtid_mode = '{step}';" for step in steps),
    )


def durability(variables: Variables, claim: str) -> Iterator[Finding]:
    """What the server may show in its binlog and still lose."""
    loose = [
        (name, value)
        for name in ("sync_binlog", "innodb_flush_log_at_trx_commit")
        if (value := variables.number(name)) is not None and value != 1
    ]
    found = ", ".join(f"{name} = {value}" for name, value in loose)
    if loose:
        yield Finding(
            "durability",
            "warning",
            found,
            "after a crash of the server's machine an event may have been published whose transaction is gone"
            + (", and claim: leader publishes it sooner" if claim == "leader" else ""),
            " ".join(f"SET PERSIST {name} = 1;" for name, _ in loose),
        )
    else:
        yield Finding("durability", "ok", "sync_binlog = 1, innodb_flush_log_at_trx_commit = 1")
    lossless = any(
        variables.on(f"rpl_semi_sync_{name}_enabled")
        and variables.text(f"rpl_semi_sync_{name}_wait_point", "AFTER_SYNC").upper() == "AFTER_SYNC"
        for name in ("source", "master")
    )
    if lossless and claim == "leader":
        yield Finding(
            "semi-sync",
            "warning",
            "semi-synchronous replication waits AFTER_SYNC",
            "a transaction is in the binlog before it is committed: claim: leader may publish an event"
            " that a failover then loses",
            "outbox: {claim: row}  # a batch is published only once its rows are visible and claimed",
        )


def binlog_filter(do: str, ignore: str, databases: Sequence[str]) -> Finding | None:
    """do, ignore: Binlog_Do_DB and Binlog_Ignore_DB as SHOW BINARY LOG STATUS prints them."""
    wanted, ignored = ({part.strip() for part in text.split(",") if part.strip()} for text in (do, ignore))
    hidden = sorted({name for name in databases if name in ignored or (wanted and name not in wanted)})
    if not hidden:
        return None
    option = f"binlog-do-db = {do}" if wanted else f"binlog-ignore-db = {ignore}"
    return Finding(
        "binlog-filter",
        "error",
        f"{option} keeps {', '.join(hidden)} out of the binlog",
        "inserts into the outbox would never be seen",
        "my.cnf: remove binlog-do-db and binlog-ignore-db — and restart the server",
    )


def time_zone(name: str, offsets: Sequence[int]) -> Finding:
    """name: the zone of our sessions; offsets: its distance from UTC in seconds through the coming year."""
    if len(set(offsets)) <= 1:
        return Finding("time-zone", "ok", f"time zone {name}")
    return Finding(
        "time-zone",
        "warning",
        f"time zone {name} has summer time",
        "DATETIME columns repeat an hour in autumn: retries may come an hour late, created_at is ambiguous",
        "SET PERSIST time_zone = '+00:00';"
        '  -- or, where the applications use UTC already, mysql: {time_zone: "+00:00"}',
    )
