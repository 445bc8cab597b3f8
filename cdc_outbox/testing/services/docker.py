"""MySQL and Kafka in containers, through testcontainers; only where a Docker engine answers.

testcontainers' plain container is used, not its MySQL and Kafka classes: those can neither keep a port across
a restart nor run Apache's own Kafka image, and their module names changed between versions.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
from importlib import import_module
from pathlib import Path
from typing import Any, Generic

from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint, free_port, wait_until
from cdc_outbox.testing.services.options import Options, kafka_options, mariadb_options, mysql_options
from cdc_outbox.testing.services.server import EndpointT
from cdc_outbox.testing.services.words import Say, Unavailable

MYSQL_IMAGE = "mysql:8.4"
MARIADB_IMAGE = "mariadb:10.11"
KAFKA_IMAGE = "apache/kafka:4.1.0"
START_DEADLINE = 120.0
"""Seconds until a container's server must answer; pulling its image comes before and has no limit of ours."""


class DockerServer(Generic[EndpointT]):
    """A Server in a container. container: a testcontainers DockerContainer, configured and not started."""

    def __init__(self, container: Any, endpoint: EndpointT, port: int) -> None:
        self.endpoint = endpoint
        self.port = port
        self._container = container
        self._started = False
        atexit.register(self.remove)

    def start(self) -> None:
        try:
            if self._started:
                self._wrapped.start()
            else:
                self._started = True
                self._container.start()
        except Exception as error:  # docker, requests and testcontainers each have their own
            self.remove()
            raise Unavailable(f"the container did not start: {_first_line(error)}") from error
        if not wait_until(self.endpoint.answers, seconds=START_DEADLINE, pause=0.2):
            log = self._wrapped.logs(tail=12).decode(errors="replace")
            self.remove()
            raise Unavailable(f"the server in the container did not answer:\n{log}")

    def stop(self) -> None:
        self._wrapped.stop(timeout=20)

    def kill(self) -> None:
        if self.alive:
            self._wrapped.kill()

    def pause(self) -> None:
        self._wrapped.pause()

    def resume(self) -> None:
        self._wrapped.unpause()

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        atexit.unregister(self.remove)
        if self._started:
            self._started = False
            with contextlib.suppress(Exception):  # gone already, or the engine is
                self._container.stop()

    @property
    def alive(self) -> bool:
        if not self._started:
            return False
        self._wrapped.reload()
        return bool(self._wrapped.status in ("running", "paused"))

    @property
    def outage(self) -> tuple[str, str]:
        return f"docker pause {self._wrapped.short_id}", f"docker unpause {self._wrapped.short_id}"

    @property
    def _wrapped(self) -> Any:
        return self._container.get_wrapped_container()


def docker_mysql(options: Options, say: Say) -> DockerServer[MySQLEndpoint]:
    """A container that runs mysqld with `options`, not started. Raises Unavailable when no engine answers."""
    image = os.environ.get("CDC_OUTBOX_TEST_MYSQL_IMAGE", MYSQL_IMAGE)
    return docker_mysqld(image, "MySQL", mysql_options({}, options), say)


def docker_mariadb(options: Options, say: Say) -> DockerServer[MySQLEndpoint]:
    """A container that runs mariadbd with `options`, not started. Raises Unavailable when no engine answers."""
    image = os.environ.get("CDC_OUTBOX_TEST_MARIADB_IMAGE", MARIADB_IMAGE)
    return docker_mysqld(image, "MariaDB", mariadb_options({}, options), say)


def docker_mysqld(image: str, what: str, options: dict[str, str], say: Say) -> DockerServer[MySQLEndpoint]:
    """A container of a MySQL or MariaDB image, not started. options: its mysqld's, no others. Raises Unavailable."""
    container, host = _container(image, what, say)
    endpoint = MySQLEndpoint(host, free_port(), "root", "")
    container.with_env("MYSQL_ALLOW_EMPTY_PASSWORD", "yes").with_env("MYSQL_ROOT_HOST", "%")
    container.with_command([f"--{name}={value}" for name, value in options.items()])
    container.with_bind_ports(3306, endpoint.port)
    return DockerServer(container, endpoint, endpoint.port)


def docker_kafka(options: Options, say: Say) -> DockerServer[KafkaEndpoint]:
    """A container that runs one broker, not started. options: as in server.properties. Raises Unavailable."""
    container, host = _container(os.environ.get("CDC_OUTBOX_TEST_KAFKA_IMAGE", KAFKA_IMAGE), "Kafka", say)
    port = free_port()
    place = {
        "listeners": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://0.0.0.0:9093",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "controller.quorum.voters": "1@localhost:9093",
    }
    for name, value in kafka_options(place, options).items():
        container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    container.with_bind_ports(port, port)
    return DockerServer(container, KafkaEndpoint(f"{host}:{port}"), port)


def _container(image: str, what: str, say: Say) -> tuple[Any, str]:
    """A container object for `image`, and the host at which its ports will be reached."""
    if not _engine_in_sight():
        raise Unavailable("no Docker engine answers at its usual sockets, and DOCKER_HOST is not set")
    try:
        make_container = import_module("testcontainers.core.container").DockerContainer
    except ImportError:
        raise Unavailable("the Python package testcontainers is not installed") from None
    try:
        container = make_container(image)
        engine = container.get_docker_client()
        engine.client.ping()
        host = engine.host()
    except Exception as error:  # docker, requests and urllib3 each have their own
        raise Unavailable(f"no Docker engine answers ({_first_line(error)})") from error
    say(f"{what}: starting {image} in Docker; the first time its image is downloaded")
    return container, "127.0.0.1" if host == "localhost" else str(host)


def _engine_in_sight() -> bool:
    """Whether it is worth asking Docker's client: its first failed attempt leaks a socket."""
    home = Path.home()
    if os.environ.get("DOCKER_HOST"):
        return True
    with contextlib.suppress(OSError, ValueError):
        if json.loads((home / ".docker/config.json").read_text()).get("currentContext", "default") != "default":
            return True
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}"))
    for path in (Path("/var/run/docker.sock"), runtime / "docker.sock", home / ".docker/run/docker.sock"):
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.settimeout(2)
            probe.connect(str(path))
            return True
    return False


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
