"""Real services for tests, the --long option, and the check that no test leaves a process behind."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pymysql
import pytest
from hypothesis import settings

from cdc_outbox.binlog import decoder as row_decoder
from cdc_outbox.binlog.accelerator import MODULE, PURE, decoder
from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.child import interrupted_by_signals
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint
from cdc_outbox.testing.services.leftover import SESSION_VARIABLE, begin_session, end_leftovers
from cdc_outbox.testing.services.options import Options
from cdc_outbox.testing.services.server import Server
from tests.harness.accelerator import accelerator, row_loop_of_both
from tests.harness.world import World

MakeMySQL = Callable[..., Server[MySQLEndpoint]]
MakeKafka = Callable[..., Server[KafkaEndpoint]]

# How long an example takes is the machine's matter, and that of what else runs on it.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked long as well")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes; runs only with --long")
    begin_session()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun by a script in the background: all that tests start
        signal.signal(signal.SIGINT, signal.default_int_handler)  # would ignore it too
    until_the_end = contextlib.ExitStack()
    until_the_end.enter_context(interrupted_by_signals())  # fixtures must be torn down then as well
    config.add_cleanup(until_the_end.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes minutes; --long runs it"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process that outlives the tests fails the run; it is ended here so that it harms nothing further."""
    leftovers = end_leftovers(os.environ[SESSION_VARIABLE])
    if leftovers:
        lines = "\n".join(f"  {pid}: {command}" for pid, command in leftovers)
        print(f"\nERROR: tests left these processes running (ended now):\n{lines}", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How long it took from the end of each outage until events flowed again, as far as tests measured it."""
    lines = [
        f"{seconds:>7} s  {report.nodeid}"
        for report in terminalreporter.getreports("passed")
        for name, seconds in report.user_properties
        if name == "recovery"
    ]
    if lines:
        terminalreporter.section("from the end of the outage to the next event at a consumer")
        for line in sorted(lines, reverse=True):
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The compiled decoder, built from these sources."""
    return accelerator(tmp_path_factory.mktemp("accelerator"))


@pytest.fixture(scope="module", params=["pure", "compiled"])
def each_decoder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs what uses it twice: with the pure decoder and with the compiled one."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "pure":
            patch.setenv(PURE, "1")
        else:
            patch.delenv(PURE, raising=False)
            patch.setitem(sys.modules, MODULE, request.getfixturevalue("compiled"))
        assert decoder().kind == request.param
        yield


@pytest.fixture(scope="module")
def both_decoders(compiled: ModuleType) -> Iterator[None]:
    """What is read from the binlog is read by the compiled decoder and by the pure one, which must agree.

    For tests whose time goes into writing what is read.
    """

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(PURE, raising=False)
        patch.setitem(sys.modules, MODULE, compiled)
        patch.setattr(row_decoder, "row_loop", row_loop_of_both)
        yield


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySQLEndpoint]:
    """A MySQL shared by all tests: row binlog, GTIDs, full metadata; the account may do everything.

    It is never a mock: where no MySQL can be had the test errors with the page of what to install.
    """
    found = providers.find_mysql(_say)
    yield found.endpoint
    found.remove()


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaEndpoint]:
    """A Kafka shared by all tests; `.bootstrap` is its address. Use topics that begin with `topic_prefix`."""
    found = providers.find_kafka(_say)
    yield found.endpoint
    found.remove()


@pytest.fixture
def make_mysql() -> Iterator[MakeMySQL]:
    """make_mysql(**mysqld_options) -> a started server that only this test uses.

    For tests that change global settings or stop, kill, pause or restart it: `make_mysql(gtid_mode="OFF",
    enforce_gtid_consistency="OFF")`. It takes 1 to 4 s.
    """
    servers: list[Server[MySQLEndpoint]] = []

    def make(**options: str | int) -> Server[MySQLEndpoint]:
        servers.append(providers.make_mysql(options, _say))
        return servers[-1]

    yield make
    for server in servers:
        server.remove()


@pytest.fixture
def make_mariadb() -> Iterator[MakeMySQL]:
    """make_mariadb(**mariadbd_options) -> a started MariaDB that only this test uses; row binlog, full metadata."""
    servers: list[Server[MySQLEndpoint]] = []

    def make(**options: str | int) -> Server[MySQLEndpoint]:
        servers.append(providers.make_mariadb(options, _say))
        return servers[-1]

    yield make
    for server in servers:
        server.remove()


@pytest.fixture
def make_kafka() -> Iterator[MakeKafka]:
    """make_kafka({"message.max.bytes": 2000}) -> a started broker that only this test uses; takes about 5 s."""
    servers: list[Server[KafkaEndpoint]] = []

    def make(options: Options | None = None) -> Server[KafkaEndpoint]:
        servers.append(providers.make_kafka(options or {}, _say))
        return servers[-1]

    yield make
    for server in servers:
        server.remove()


@pytest.fixture
def database(mysql_server: MySQLEndpoint) -> Iterator[str]:
    """The name of a fresh, empty database, dropped after the test."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    _execute(mysql_server, f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    yield name
    _execute(mysql_server, f"DROP DATABASE IF EXISTS `{name}`")


@pytest.fixture
def topic_prefix() -> str:
    """What this test's topics begin with: no other test has it. Ends in a dot."""
    return f"t-{uuid.uuid4().hex[:12]}."


@pytest.fixture
def make_world(
    database: str, topic_prefix: str, tmp_path: Path, mysql_server: MySQLEndpoint, kafka_broker: KafkaEndpoint
) -> Iterator[Callable[..., World]]:
    """make_world(mysql=…, kafka=…) -> a world on servers of the test's own; None: the shared one.

    init=False: without tables yet, for a configuration of the test's own.
    """
    worlds: list[World] = []

    def make(mysql: MySQLEndpoint | None = None, kafka: KafkaEndpoint | None = None, *, init: bool = True) -> World:
        server, broker = mysql or mysql_server, kafka or kafka_broker
        if mysql is not None:
            _execute(server, f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4")
        found = World(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            database=database,
            bootstrap=broker.bootstrap,
            prefix=topic_prefix,
            folder=tmp_path,
        )
        worlds.append(found)
        if init:
            found.init()
        return found

    yield make
    for found in worlds:
        found.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A fresh database with its tables, topics of its own; relays started through it are ended at the end."""
    return make_world()


def _execute(server: MySQLEndpoint, statement: str) -> None:
    connection = pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        autocommit=True,
        connect_timeout=10,
        read_timeout=60,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(statement)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
