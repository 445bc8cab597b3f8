"""The settings that a server for tests has, in a container as natively; a test's own options come on top."""

from __future__ import annotations

from collections.abc import Mapping

Options = Mapping[str, str | int]

_MYSQL = {
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "binlog-row-metadata": "FULL",
    "server-id": "1",
}
_MARIADB = {
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-metadata": "FULL",
    "server-id": "1",
}
_KAFKA = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that was killed may register again only when its old session has run out (9 s by default).
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}


_ADDED = ("listeners", "listener.security.protocol.map", "advertised.listeners")


def mysql_options(place: Options, wanted: Options) -> dict[str, str]:
    """mysqld's options, dashes in their names. place: what the provider needs; wanted: what the test asks for."""
    return {**_MYSQL, **_texts(place), **{name.replace("_", "-"): text for name, text in _texts(wanted).items()}}


def mariadb_options(place: Options, wanted: Options) -> dict[str, str]:
    """mariadbd's options, as `mysql_options` gives mysqld's."""
    return {**_MARIADB, **_texts(place), **{name.replace("_", "-"): text for name, text in _texts(wanted).items()}}


def kafka_options(place: Options, wanted: Options) -> dict[str, str]:
    """Lines of server.properties for one broker; further listeners come beside ours, advertised as they are unless
    `wanted` says otherwise."""
    ours, theirs = {**_KAFKA, **_texts(place)}, _texts(wanted)
    if "listeners" in theirs:
        theirs.setdefault("advertised.listeners", theirs["listeners"])
    both = {name: f"{ours[name]},{theirs[name]}" for name in _ADDED if name in ours and name in theirs}
    return {**ours, **theirs, **both}


def _texts(options: Options) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}
