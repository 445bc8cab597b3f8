"""Where a service answers, and how we know: one exchange of its own protocol, without a client library."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

PORTS = range(21000, 32000)
"""Below the kernel's ephemeral range, so that a server can come back on its port after a restart."""


class Endpoint(Protocol):
    """A place where a service should answer. address: host:port, safe to print."""

    @property
    def address(self) -> str: ...

    def answers(self) -> bool: ...


@dataclass(frozen=True)
class MySQLEndpoint:
    """A MySQL server and an account that may do everything on it."""

    host: str
    port: int
    user: str
    password: str

    @classmethod
    def parse(cls, url: str) -> MySQLEndpoint:
        """Read mysql://user:password@host:port. Raises ValueError, which never shows the password."""
        parts = urlsplit(url)
        try:
            port = parts.port or 3306
        except ValueError:
            raise ValueError("the port is not a number below 65536") from None
        if parts.scheme != "mysql" or not parts.hostname:
            raise ValueError("it is not of the form mysql://user:password@host:port")
        return cls(parts.hostname, port, unquote(parts.username or "root"), unquote(parts.password or ""))

    @property
    def url(self) -> str:
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        return f"mysql://{quote(self.user, safe='')}{secret}@{self.host}:{self.port}"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def answers(self) -> bool:
        """True when the server greets: MySQL sends its handshake packet only when it takes connections."""
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as link:
                greeting = _exactly(link, 5)
        except OSError:
            return False
        return greeting[4] == 10  # protocol version; 255 would be an error packet, "too many connections" for example


@dataclass(frozen=True)
class KafkaEndpoint:
    """A Kafka cluster. bootstrap: host:port, or several with commas between them."""

    bootstrap: str

    def __post_init__(self) -> None:
        for server in self.bootstrap.split(","):
            host, colon, port = server.strip().rpartition(":")
            if not (host and colon and port.isdigit()):
                raise ValueError(f"'{server}' is not of the form host:port")

    @property
    def address(self) -> str:
        return self.bootstrap

    def answers(self) -> bool:
        """True when a broker names at least one broker that clients may use (Metadata v0)."""
        host, _, port = self.bootstrap.split(",")[0].strip().rpartition(":")
        request = struct.pack(">hhihi", 3, 0, 1, -1, 0)  # Metadata, version 0, correlation 1, no client id, no topics
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=2) as link:
                link.sendall(struct.pack(">i", len(request)) + request)
                size = struct.unpack(">i", _exactly(link, 4))[0]
                answer = _exactly(link, min(size, 8))
        except OSError:
            return False
        return len(answer) == 8 and struct.unpack(">ii", answer)[1] > 0


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on now."""
    chosen = random.Random(os.urandom(8))
    for _ in range(200):
        port = chosen.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop} on 127.0.0.1")


def wait_until(condition: Callable[[], bool], *, seconds: float, pause: float = 0.05) -> bool:
    """Ask until condition() is true; False when `seconds` have gone by without."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True


def _exactly(link: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = link.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("closed while we read")
        received += piece
    return received
