"""Which provider gives MySQL and Kafka: environment URLs, the running pair, Docker, then native packages.

Each says in one line why it cannot; when none can, NoService carries one page of what to install.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from cdc_outbox.testing.services.cache import cache_folder
from cdc_outbox.testing.services.docker import docker_kafka, docker_mariadb, docker_mysql
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint
from cdc_outbox.testing.services.kafka_native import (
    KAFKA_VERSION,
    java_command,
    kafka_jars,
    native_brokers,
    native_kafka,
)
from cdc_outbox.testing.services.mariadb_native import installed_mariadb, native_mariadb, packaged_mariadb
from cdc_outbox.testing.services.mysql_native import (
    MySQLBinaries,
    installed_binaries,
    native_mysql,
    packaged_binaries,
)
from cdc_outbox.testing.services.options import Options
from cdc_outbox.testing.services.server import EndpointT, Server
from cdc_outbox.testing.services.words import Say, Unavailable

MYSQL_VARIABLE = "CDC_OUTBOX_TEST_MYSQL_URL"
KAFKA_VARIABLE = "CDC_OUTBOX_TEST_KAFKA"


class NoService(Exception):
    """No provider can give this service here; the message is a page that says what to do."""


@dataclass(frozen=True)
class Found(Generic[EndpointT]):
    """A service that answers. server: set when it is ours to stop; outage: see Server, where it is known."""

    endpoint: EndpointT
    server: Server[EndpointT] | None = None
    outage: tuple[str, str] | None = None

    def remove(self) -> None:
        if self.server is not None:
            self.server.remove()


@dataclass(frozen=True)
class Provider(Generic[EndpointT]):
    """One way to come by a service. find: raises Unavailable with the reason when it cannot."""

    name: str
    find: Callable[[], Found[EndpointT]]


def find_mysql(say: Say) -> Found[MySQLEndpoint]:
    """A MySQL server with row binlog, GTIDs and full metadata. Raises NoService."""
    own = own_mysql_providers({}, say)
    return _first("MySQL", [*_given_mysql(os.environ), *own], _MYSQL_HELP, say)


def find_kafka(say: Say) -> Found[KafkaEndpoint]:
    """A Kafka cluster of one broker or more. Raises NoService."""
    own = own_kafka_providers({}, say)
    return _first("Kafka", [*_given_kafka(os.environ), *own], _KAFKA_HELP, say)


def make_mysql(options: Options, say: Say) -> Server[MySQLEndpoint]:
    """A server that nobody else uses, with further mysqld options, started. Raises NoService."""
    return _own(_first("MySQL", own_mysql_providers(options, say), _MYSQL_HELP, say))


def make_mariadb(options: Options, say: Say) -> Server[MySQLEndpoint]:
    """A MariaDB server that nobody else uses, with further mariadbd options, started. Raises NoService."""

    def native(binaries: MySQLBinaries) -> Found[MySQLEndpoint]:
        say(f"MariaDB: starting {binaries.version}")
        return _started(native_mariadb(binaries, options))

    providers = [
        Provider("Docker", lambda: _started(docker_mariadb(options, say))),
        Provider("installed mariadbd", lambda: native(installed_mariadb())),
        Provider("native packages", lambda: native(packaged_mariadb(say))),
    ]
    return _own(_first("MariaDB", providers, _MARIADB_HELP, say))


def make_kafka(options: Options, say: Say) -> Server[KafkaEndpoint]:
    """A broker that nobody else uses, with further lines of server.properties, started. Raises NoService."""
    return _own(_first("Kafka", own_kafka_providers(options, say), _KAFKA_HELP, say))


def make_kafka_cluster(count: int, options: Options, say: Say) -> list[Server[KafkaEndpoint]]:
    """Brokers of one cluster that nobody else uses, started. Natively only: from a container none would find another.

    Raises NoService.
    """
    try:
        java, jars = java_command(say), kafka_jars(say)
    except Unavailable as error:
        raise NoService(f"No Kafka cluster could be started here: {error}\n\n{_KAFKA_HELP}") from None
    say(f"Kafka: starting {KAFKA_VERSION}, {count} brokers")
    brokers: list[Server[KafkaEndpoint]] = [*native_brokers(jars, java, count, options)]
    try:
        with ThreadPoolExecutor() as pool:  # none answers before most of them run
            for started in [pool.submit(broker.start) for broker in brokers]:
                started.result()
    except BaseException:
        for broker in brokers:
            broker.remove()
        raise
    return brokers


def own_mysql_providers(options: Options, say: Say) -> list[Provider[MySQLEndpoint]]:
    def native(binaries: MySQLBinaries) -> Found[MySQLEndpoint]:
        say(f"MySQL: starting {binaries.version}")
        return _started(native_mysql(binaries, options))

    return [
        Provider("Docker", lambda: _started(docker_mysql(options, say))),
        Provider("installed mysqld", lambda: native(installed_binaries())),
        Provider("native packages", lambda: native(packaged_binaries(say))),
    ]


def own_kafka_providers(options: Options, say: Say) -> list[Provider[KafkaEndpoint]]:
    def native() -> Found[KafkaEndpoint]:
        java, jars = java_command(say), kafka_jars(say)
        say(f"Kafka: starting {KAFKA_VERSION}")
        return _started(native_kafka(jars, java, options))

    return [
        Provider("Docker", lambda: _started(docker_kafka(options, say))),
        Provider("native packages", native),
    ]


def state_file() -> Path:
    """Where `scripts/services start` writes down the pair that it left running."""
    return cache_folder() / "services" / "pair.json"


def read_state() -> dict[str, str]:
    """What `scripts/services start` wrote down. Raises Unavailable."""
    try:
        return {name: str(value) for name, value in json.loads(state_file().read_text()).items()}
    except (OSError, ValueError, AttributeError):
        raise Unavailable(f"{state_file()} cannot be read") from None


def _given_mysql(environ: Mapping[str, str]) -> list[Provider[MySQLEndpoint]]:
    providers = []
    if environ.get(MYSQL_VARIABLE):
        url = environ[MYSQL_VARIABLE]
        providers.append(Provider(MYSQL_VARIABLE, lambda: _answering(MySQLEndpoint.parse(url))))
    if state_file().exists():
        providers.append(Provider("running pair", lambda: _running("mysql", MySQLEndpoint.parse)))
    return providers


def _given_kafka(environ: Mapping[str, str]) -> list[Provider[KafkaEndpoint]]:
    providers = []
    if environ.get(KAFKA_VARIABLE):
        bootstrap = environ[KAFKA_VARIABLE]
        providers.append(Provider(KAFKA_VARIABLE, lambda: _answering(KafkaEndpoint(bootstrap))))
    if state_file().exists():
        providers.append(Provider("running pair", lambda: _running("kafka", KafkaEndpoint)))
    return providers


def _running(name: str, parse: Callable[[str], EndpointT]) -> Found[EndpointT]:
    pair = read_state()
    pause, resume = pair.get(f"{name}_pause"), pair.get(f"{name}_resume")
    return _answering(parse(pair.get(name, "")), (pause, resume) if pause and resume else None)


def _answering(endpoint: EndpointT, outage: tuple[str, str] | None = None) -> Found[EndpointT]:
    if not endpoint.answers():
        raise Unavailable(f"nothing that speaks its protocol answers at {endpoint.address}")
    return Found(endpoint, outage=outage)


def _started(server: Server[EndpointT]) -> Found[EndpointT]:
    try:
        server.start()
    except BaseException:
        server.remove()
        raise
    return Found(server.endpoint, server, server.outage)


def _first(what: str, providers: Sequence[Provider[EndpointT]], advice: str, say: Say) -> Found[EndpointT]:
    reasons: list[str] = []
    for provider in providers:
        try:
            found = provider.find()
        except (Unavailable, ValueError) as error:
            reasons.append(f"{provider.name}: {error}")
            say(f"{what}: not from {provider.name}: {str(error).splitlines()[0]}")
        else:
            say(f"{what}: {found.endpoint.address} ({provider.name})")
            return found
    listed = "\n".join(f"  - {reason}" for reason in reasons)
    raise NoService(f"No {what} could be found or started here.\n\nTried, in this order:\n{listed}\n\n{advice}")


def _own(found: Found[EndpointT]) -> Server[EndpointT]:
    assert found.server is not None  # only providers that start one were asked
    return found.server


_MYSQL_HELP = f"""\
Any one of these will do:
  1. Name a server that you have; its user may do everything, and the server needs log_bin, binlog_format=ROW,
     gtid_mode=ON and binlog_row_metadata=FULL:
         export {MYSQL_VARIABLE}='mysql://root:PASSWORD@127.0.0.1:3306'
  2. Start Docker, so that `docker ps` works for this user.
  3. On Debian or Ubuntu: have apt-get reach its mirror; MySQL is then unpacked into the cache, without root.
  4. Install MySQL 8.0 or later, so that `mysqld --version` works (macOS: brew install mysql)."""

_MARIADB_HELP = """\
Any one of these will do:
  1. Start Docker, so that `docker ps` works for this user.
  2. On Debian or Ubuntu: have apt-get reach its mirror; MariaDB is then unpacked into the cache, without root.
  3. Install MariaDB, so that `mariadbd --version` works."""

_KAFKA_HELP = f"""\
Any one of these will do:
  1. Name a broker that you have:
         export {KAFKA_VARIABLE}='127.0.0.1:9092'
  2. Start Docker, so that `docker ps` works for this user.
  3. Install Java 17 or later and Maven, and have Maven reach its repository; Kafka is then fetched by it:
         sudo apt-get install default-jre-headless maven      (macOS: brew install openjdk maven)"""
