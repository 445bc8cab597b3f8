"""A TCP proxy in front of MySQL that changes what the server says of itself, as proxies and other servers do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from cdc_outbox.testing.services.endpoint import MySQLEndpoint

VERSION_AT = 5
"""Behind the packet's header and the protocol's version: text that ends with a zero byte."""


def another_connection_id(greeting: bytearray) -> None:
    """As a pooling proxy gives its own."""
    greeting[greeting.index(0, VERSION_AT) + 1] ^= 0xFF


def tidb(greeting: bytearray) -> None:
    """TiDB's way of naming its version."""
    end = greeting.index(0, VERSION_AT)
    name = b"8.0.11-TiDB-v7.5.0"
    greeting[VERSION_AT:end] = name
    greeting[0:3] = (len(greeting) - 4).to_bytes(3, "little")


class GreetingProxy:
    """Forwards connections to a server and rewrites the greeting of each."""

    def __init__(self, server: MySQLEndpoint, rewrite: Callable[[bytearray], None]) -> None:
        self._server = server
        self._rewrite = rewrite
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._sockets: list[socket.socket] = [self._listener]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            backend = socket.create_connection((self._server.host, self._server.port))
            greeting = bytearray(backend.recv(4096))
            self._rewrite(greeting)
            client.sendall(greeting)
            self._sockets += [client, backend]
            for source, sink in ((client, backend), (backend, client)):
                self._threads.append(threading.Thread(target=self._copy, args=(source, sink), daemon=True))
                self._threads[-1].start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while piece := source.recv(65536):
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        for one in self._sockets:
            _cut(one)
        for thread in self._threads:
            thread.join(5)


def _cut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        one.close()
