"""The services for tests: who gives them, in which order, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cdc_outbox.config import load_settings
from cdc_outbox.testing.services import (
    background,
    docker,
    kafka_native,
    mysql_native,
    packages,
    providers,
)
from cdc_outbox.testing.services.cache import fetched
from cdc_outbox.testing.services.child import Child, PrivateFolder
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint, free_port, wait_until
from cdc_outbox.testing.services.leftover import SESSION_VARIABLE, begin_session, leftovers
from cdc_outbox.testing.services.words import Unavailable

ROOT = Path(__file__).parents[2]
MYSQL_GREETING = b"\x4a\x00\x00\x00\x0a9.7.4\x00"
MYSQL_REFUSAL = b"\x17\x00\x00\x00\xff\x10\x04Too many connections"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(providers.MYSQL_VARIABLE, raising=False)
    monkeypatch.delenv(providers.KAFKA_VARIABLE, raising=False)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def listener() -> Iterator[Callable[[bytes], int]]:
    """listener(greeting) -> port of a server that sends `greeting` to whoever connects."""
    sockets: list[socket.socket] = []

    def greet(server: socket.socket, greeting: bytes) -> None:
        while True:
            try:
                link, _ = server.accept()
            except OSError:
                return
            with link:
                link.sendall(greeting)

    def listen(greeting: bytes) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)
        threading.Thread(target=greet, args=(server, greeting), daemon=True).start()
        return int(server.getsockname()[1])

    yield listen
    for server in sockets:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


# --- endpoints ---


def test_a_mysql_url_keeps_every_character_of_its_password() -> None:
    endpoint = MySQLEndpoint("db.local", 3307, "root", "p@ss:w/rd#ü")
    assert MySQLEndpoint.parse(endpoint.url) == endpoint
    assert MySQLEndpoint.parse("mysql://db") == MySQLEndpoint("db", 3306, "root", "")


@pytest.mark.parametrize("url", ["root:secret@db", "http://root:secret@db", "mysql://root:secret@db:port"])
def test_a_wrong_mysql_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        MySQLEndpoint.parse(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("bootstrap", ["", "kafka", "kafka:", ":9092", "a:1,b"])
def test_a_wrong_bootstrap_address_is_refused(bootstrap: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        KafkaEndpoint(bootstrap)


@pytest.mark.parametrize(("greeting", "answers"), [(MYSQL_GREETING, True), (MYSQL_REFUSAL, False), (b"", False)])
def test_mysql_answers_when_it_greets(listener: Callable[[bytes], int], greeting: bytes, answers: bool) -> None:
    assert MySQLEndpoint("127.0.0.1", listener(greeting), "root", "").answers() is answers


@pytest.mark.parametrize(("brokers", "answers"), [(1, True), (0, False)])
def test_kafka_answers_when_it_names_a_broker(listener: Callable[[bytes], int], brokers: int, answers: bool) -> None:
    metadata = b"\x00\x00\x00\x0c" + b"\x00\x00\x00\x01" + brokers.to_bytes(4, "big") + b"\x00\x00\x00\x00"
    assert KafkaEndpoint(f"127.0.0.1:{listener(metadata)}").answers() is answers


def test_where_nobody_listens_nothing_answers() -> None:
    port = free_port()
    assert not MySQLEndpoint("127.0.0.1", port, "root", "").answers()
    assert not KafkaEndpoint(f"127.0.0.1:{port}").answers()


# --- the order of providers ---


def _unavailable(reason: str) -> Callable[..., Any]:
    def refuse(*arguments: object, **options: object) -> Any:
        raise Unavailable(reason)

    return refuse


@pytest.fixture
def nothing_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "docker_mysql", _unavailable("no engine"))
    monkeypatch.setattr(providers, "docker_kafka", _unavailable("no engine"))
    monkeypatch.setattr(providers, "installed_binaries", _unavailable("no mysqld is installed"))
    monkeypatch.setattr(providers, "packaged_binaries", _unavailable("no apt-get"))
    monkeypatch.setattr(providers, "java_command", _unavailable("no Java is installed"))


class FakeServer:
    """Stands for a container or a native server."""

    outage = ("pause it", "resume it")

    def __init__(self, endpoint: Any, *, broken: bool = False) -> None:
        self.endpoint = endpoint
        self.broken = broken
        self.removed = False

    def start(self) -> None:
        if self.broken:
            raise Unavailable("it does not start")

    def remove(self) -> None:
        self.removed = True


def test_the_environment_comes_first(
    listener: Callable[[bytes], int], monkeypatch: pytest.MonkeyPatch, nothing_works: None, said: list[str]
) -> None:
    port = listener(MYSQL_GREETING)
    monkeypatch.setenv(providers.MYSQL_VARIABLE, f"mysql://root:secret@127.0.0.1:{port}")
    found = providers.find_mysql(said.append)
    assert found.endpoint == MySQLEndpoint("127.0.0.1", port, "root", "secret")
    assert found.server is None
    assert said == [f"MySQL: 127.0.0.1:{port} ({providers.MYSQL_VARIABLE})"]


def test_the_running_pair_comes_second(
    listener: Callable[[bytes], int], monkeypatch: pytest.MonkeyPatch, nothing_works: None, said: list[str]
) -> None:
    port = listener(MYSQL_GREETING)
    monkeypatch.setenv(providers.MYSQL_VARIABLE, f"mysql://root:secret@127.0.0.1:{free_port()}")
    providers.state_file().parent.mkdir(parents=True)
    providers.state_file().write_text(json.dumps({"mysql": f"mysql://root@127.0.0.1:{port}", "kafka": "x:1"}))
    assert providers.find_mysql(said.append).endpoint.port == port
    assert said[0].startswith(f"MySQL: not from {providers.MYSQL_VARIABLE}: nothing that speaks its protocol")
    assert "secret" not in "".join(said)


def test_docker_comes_before_native(monkeypatch: pytest.MonkeyPatch, nothing_works: None, said: list[str]) -> None:
    server: Any = FakeServer(KafkaEndpoint("127.0.0.1:9092"))
    monkeypatch.setattr(providers, "docker_kafka", lambda options, say: server)
    found: Any = providers.find_kafka(said.append)
    assert found.server is server
    assert found.outage == server.outage
    assert said == ["Kafka: 127.0.0.1:9092 (Docker)"]
    found.remove()
    assert server.removed


def test_a_server_that_does_not_start_is_removed_and_the_next_is_tried(
    monkeypatch: pytest.MonkeyPatch, nothing_works: None, said: list[str]
) -> None:
    broken = FakeServer(MySQLEndpoint("127.0.0.1", 1, "root", ""), broken=True)
    native: Any = FakeServer(MySQLEndpoint("127.0.0.1", 2, "root", ""))
    monkeypatch.setattr(providers, "docker_mysql", lambda options, say: broken)
    monkeypatch.setattr(providers, "packaged_binaries", lambda say: SimpleNamespace(version="9.7.4"))
    monkeypatch.setattr(providers, "native_mysql", lambda binaries, options: native)
    assert providers.make_mysql({"gtid_mode": "OFF"}, said.append) is native
    assert broken.removed
    assert said == [
        "MySQL: not from Docker: it does not start",
        "MySQL: not from installed mysqld: no mysqld is installed",
        "MySQL: starting 9.7.4",
        "MySQL: 127.0.0.1:2 (native packages)",
    ]


def test_a_server_of_ones_own_is_never_a_given_one(
    listener: Callable[[bytes], int], monkeypatch: pytest.MonkeyPatch, nothing_works: None, said: list[str]
) -> None:
    monkeypatch.setenv(providers.MYSQL_VARIABLE, f"mysql://root@127.0.0.1:{listener(MYSQL_GREETING)}")
    with pytest.raises(providers.NoService):
        providers.make_mysql({}, said.append)


def test_when_none_can_the_page_says_why_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, nothing_works: None, said: list[str]
) -> None:
    monkeypatch.setenv(providers.KAFKA_VARIABLE, "nonsense")
    with pytest.raises(providers.NoService) as page:
        providers.find_kafka(said.append)
    text = str(page.value)
    assert f"{providers.KAFKA_VARIABLE}: 'nonsense' is not of the form host:port" in text
    assert "Docker: no engine" in text
    assert "native packages: no Java is installed" in text
    assert "sudo apt-get install default-jre-headless maven" in text
    with pytest.raises(providers.NoService, match="mysql://root:PASSWORD@"):
        providers.find_mysql(said.append)


# --- Docker, with containers that only remember what they were told ---


class FakeContainer:
    def __init__(self, image: str) -> None:
        self.image = image
        self.environment: dict[str, str] = {}
        self.command: list[str] = []
        self.ports: dict[int, int] = {}
        self.calls: list[str] = []
        self.status = "running"
        self.short_id = "abc"

    def get_docker_client(self) -> Any:
        return SimpleNamespace(client=SimpleNamespace(ping=lambda: None), host=lambda: "localhost")

    def with_env(self, name: str, value: str) -> FakeContainer:
        self.environment[name] = value
        return self

    def with_command(self, command: list[str]) -> None:
        self.command = command

    def with_bind_ports(self, container: int, host: int) -> None:
        self.ports[container] = host

    def get_wrapped_container(self) -> FakeContainer:
        return self

    def reload(self) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **options: self.calls.append(name)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "_engine_in_sight", lambda: True)
    monkeypatch.setattr(docker, "import_module", lambda name: SimpleNamespace(DockerContainer=FakeContainer))


def _container(server: docker.DockerServer[Any]) -> FakeContainer:
    container = server._container
    assert isinstance(container, FakeContainer)
    return container


def test_mysql_in_docker_is_set_up_for_the_relay(engine: None, said: list[str]) -> None:
    server = docker.docker_mysql({"net_write_timeout": 5}, said.append)
    container = _container(server)
    assert {"--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--binlog-row-metadata=FULL"} <= set(container.command)
    assert "--net-write-timeout=5" in container.command
    assert container.environment["MYSQL_ROOT_HOST"] == "%"
    assert container.ports == {3306: server.endpoint.port}
    assert server.outage == ("docker pause abc", "docker unpause abc")


def test_kafka_in_docker_names_the_address_that_clients_use(engine: None, said: list[str]) -> None:
    server = docker.docker_kafka({"message.max.bytes": 2000}, said.append)
    environment = _container(server).environment
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://127.0.0.1:{server.port}"
    assert environment["KAFKA_MESSAGE_MAX_BYTES"] == "2000"
    assert environment["KAFKA_PROCESS_ROLES"] == "broker,controller"


def test_a_container_lives_from_start_to_remove(engine: None, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaEndpoint, "answers", lambda endpoint: True)
    server = docker.docker_kafka({}, said.append)
    alive = [server.alive]
    server.start()
    alive.append(server.alive)
    server.restart()
    server.pause()
    server.resume()
    server.kill()
    server.remove()
    server.remove()
    assert alive == [False, True]
    assert _container(server).calls == ["start", "stop", "start", "pause", "unpause", "kill", "stop"]


def test_a_container_that_does_not_start_is_removed(
    engine: None, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = docker.docker_mysql({}, said.append)
    container = _container(server)

    def fail() -> None:
        raise ConnectionError("no such image\nlong story")

    monkeypatch.setattr(container, "start", fail, raising=False)
    with pytest.raises(Unavailable, match=r"^the container did not start: no such image$"):
        server.start()
    assert container.calls == ["stop"]


def test_without_an_engine_docker_says_so(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "_engine_in_sight", lambda: False)
    with pytest.raises(Unavailable, match="no Docker engine answers"):
        docker.docker_mysql({}, said.append)


# --- packages ---

STANZAS = """\
Types: deb
URIs: https://mirror.invalid/debian-security
Suites: bookworm-security
Signed-By: /usr/share/keyrings/a.gpg

Types: deb
URIs: https://off.invalid/debian
Enabled: no

# a comment
Types: deb deb-src
URIs: https://mirror.invalid/debian https://second.invalid/debian
Suites: bookworm
Signed-By: /usr/share/keyrings/b.gpg
"""


def test_the_mirror_is_the_machines_own_from_stanzas(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(STANZAS)
    assert packages.machine_mirror(tmp_path) == packages.Mirror(
        "https://mirror.invalid/debian", "/usr/share/keyrings/b.gpg"
    )


def test_the_mirror_is_the_machines_own_from_lines(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(
        "# deb https://comment.invalid/debian x main\n"
        "deb https://mirror.invalid/security x main\n"
        "deb [arch=amd64 signed-by=/k.gpg] https://mirror.invalid/ubuntu noble main\n"
    )
    assert packages.machine_mirror(tmp_path) == packages.Mirror("https://mirror.invalid/ubuntu", "/k.gpg")


def test_a_machine_without_apt_sources_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no package archive is configured"):
        packages.machine_mirror(tmp_path)


# --- Java and Maven ---


@pytest.fixture
def apt_calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A machine with apt-get and no Java; what apt-get was called with."""
    calls: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return calls


def test_root_has_a_missing_java_installed(
    apt_calls: list[list[str]], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(Unavailable, match="no Java is installed"):  # this apt-get installs nothing
        kafka_native.java_command(said.append)
    assert [call[:3] for call in apt_calls] == [["apt-get", "-qq", "update"], ["apt-get", "-qq", "install"]]
    assert apt_calls[1][-1] == "default-jre-headless"
    assert said == ["Kafka needs Java: installing default-jre-headless with apt-get, as root; this takes a minute"]


def test_an_ordinary_user_is_told_what_to_install(
    apt_calls: list[list[str]], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="run `sudo apt-get install default-jre-headless`"):
        kafka_native.java_command(said.append)
    with pytest.raises(Unavailable, match="run `sudo apt-get install maven`"):
        kafka_native.kafka_jars(said.append)
    assert not apt_calls


def test_an_old_java_is_refused(said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match="is version 11; 17 or later is needed"):
        kafka_native.java_command(said.append)


def test_mariadb_is_not_taken_for_mysql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mysqld = tmp_path / "mysqld"
    mysqld.write_text("#!/bin/sh\necho 'mysqld  Ver 10.11.6-MariaDB for debian-linux-gnu'\n")
    mysqld.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(Unavailable, match="MariaDB"):
        mysql_native.installed_binaries()
    mysqld.write_text("#!/bin/sh\necho 'mysqld  Ver 8.4.6 for Linux on x86_64'\n")
    assert mysql_native.installed_binaries() == mysql_native.MySQLBinaries("8.4.6", (str(mysqld),))


# --- the cache ---


def test_a_download_is_made_once_and_whole(tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        (folder / "half").touch()
        raise Unavailable("the line broke")

    def good(folder: Path) -> None:
        (folder / "whole").touch()

    with pytest.raises(Unavailable, match="the line broke"):
        fetched("thing", broken)
    folder = fetched("thing", good)
    assert fetched("thing", broken) == folder
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["thing", "thing.lock"]


# --- children ---


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Child]:
    child = Child(["sleep", "300"], log=tmp_path / "log")
    yield child
    child.kill()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_child_can_be_stopped_and_started_again(sleeper: Child) -> None:
    assert not sleeper.alive
    sleeper.start()
    first = sleeper.pid
    sleeper.start()
    assert sleeper.pid == first
    sleeper.stop()
    assert not sleeper.alive
    with pytest.raises(LookupError):
        _ = sleeper.pid
    sleeper.start()
    assert sleeper.pid != first


def test_a_paused_child_can_be_resumed_and_stopped(sleeper: Child) -> None:
    sleeper.start()
    for _ in range(3):
        sleeper.pause()
        assert _state(sleeper.pid) == "T"
        assert sleeper.alive
        sleeper.resume()
        assert wait_until(lambda: _state(sleeper.pid) == "S", seconds=5)
    sleeper.pause()
    sleeper.stop(deadline=5)
    assert not sleeper.alive


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    deaf = Child(["bash", "-c", "trap '' TERM; echo ready; while :; do sleep 300; done"], log=tmp_path / "log")
    deaf.start()
    assert wait_until(lambda: "ready" in deaf.last_lines(), seconds=5)
    deaf.stop(deadline=0.2)
    assert not deaf.alive


STARTER = """
import sys, threading
from pathlib import Path
from cdc_outbox.testing.services.child import Child, PrivateFolder, interrupted_by_signals
folder = PrivateFolder("starter", under=Path(sys.argv[1]))
child = Child(["sleep", "300"], log=folder.path / "log")
child.start()
with interrupted_by_signals():
    print(child.pid, folder.path, flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whatever_ends_the_starter_ends_what_it_started(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as starter:
        assert starter.stdout is not None
        pid, folder = starter.stdout.readline().split()
        assert Path(folder).is_dir()
        starter.send_signal(number)
        starter.wait(20)
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists() or _state(int(pid)) == "Z", seconds=10)
    assert wait_until(lambda: not Path(folder).exists(), seconds=10)


def test_a_private_folder_is_gone_when_it_is_removed(tmp_path: Path) -> None:
    folder = PrivateFolder("x", under=tmp_path)
    assert folder.path.is_dir()
    folder.remove()
    assert not folder.path.exists()


@pytest.mark.parametrize("killed_in_between", [False, True])
def test_a_process_that_outlives_its_test_is_found(monkeypatch: pytest.MonkeyPatch, killed_in_between: bool) -> None:
    """Also when it is one of a session inside that did not get to look for it."""
    monkeypatch.delenv(SESSION_VARIABLE)
    outer = session = begin_session()
    if killed_in_between:
        session = begin_session()
        assert session != outer
    command = [sys.executable, "-c", "import subprocess; print(subprocess.Popen(['sleep', '300'], stdout=-3).pid)"]
    orphan = int(
        subprocess.run(
            command,
            env={**os.environ, SESSION_VARIABLE: session},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
    )
    try:
        assert (orphan, "sleep 300") in leftovers(outer)
        assert (orphan, "sleep 300") in leftovers(session)
        assert (orphan, "sleep 300") not in leftovers(session[:-1])
    finally:
        os.kill(orphan, signal.SIGKILL)


# --- the running pair ---


def test_what_a_crash_left_written_down_is_no_running_pair() -> None:
    assert background.running() is None
    providers.state_file().parent.mkdir(parents=True)
    providers.state_file().write_text(json.dumps({"mysql": "mysql://root@x", "kafka": "x:1", "pid": "1"}))
    providers.state_file().with_name("lock").touch()
    assert background.running() is None
    assert background.stop() is False


# --- files of the repository ---


def test_the_compose_file_sets_up_what_the_relay_needs() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert {
        "--server-id=1",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--binlog-row-image=FULL",
        "--binlog-row-metadata=FULL",
    } <= set(services["mysql"]["command"])
    assert services["kafka"]["environment"]["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert services["init"]["depends_on"] == {
        "mysql": {"condition": "service_healthy"},
        "kafka": {"condition": "service_healthy"},
    }
    assert services["relay"]["depends_on"] == {"init": {"condition": "service_completed_successfully"}}
    assert all("healthcheck" in services[name] for name in ("mysql", "kafka", "relay"))


def test_the_relay_in_the_compose_file_has_settings_that_are_accepted() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    settings = load_settings(None, services["relay"]["environment"])
    assert settings.mysql.host == "mysql"
    assert settings.mysql.password.get_secret_value() == services["mysql"]["environment"]["MYSQL_ROOT_PASSWORD"]
    listeners = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INTERNAL://{settings.kafka.bootstrap_servers}" in listeners
    grace = float(services["relay"]["stop_grace_period"].removesuffix("s"))
    assert grace > settings.limits.shutdown_timeout


@pytest.mark.parametrize(
    "name", ["scripts/demo", "scripts/example", "scripts/test", "scripts/services", "scripts/audit", ".ci/run"]
)
def test_the_scripts_are_executable_and_parse(name: str) -> None:
    assert (ROOT / name).stat().st_mode & stat.S_IXUSR
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True)


def test_ci_runs_the_test_command() -> None:
    assert "exec scripts/test\n" in (ROOT / ".ci/run").read_text()
