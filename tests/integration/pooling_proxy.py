"""A proxy that shares server sessions as pooling proxies do: each statement may run in another one."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading

import pymysql

from cdc_outbox.testing.services.endpoint import MySQLEndpoint

_QUERY = 0x03


class PoolingProxy:
    """One client at a time logs in at the server itself; its statements go to two sessions in turn. No TLS."""

    def __init__(self, server: MySQLEndpoint) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._sockets: list[socket.socket] = [self._listener]
        self._pooled: list[pymysql.Connection[pymysql.cursors.Cursor]] = []
        threading.Thread(target=self._accept, name="pooling-proxy", daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        place = self._server
        own = socket.create_connection((place.host, place.port))
        pooled = pymysql.connect(
            host=place.host,
            port=place.port,
            user=place.user,
            password=place.password,
            autocommit=True,
            ssl_disabled=True,
        )
        shared: socket.socket = pooled._sock  # type: ignore[attr-defined]
        shared.settimeout(None)
        self._pooled.append(pooled)
        self._sockets += [client, own, shared]
        for source in (own, shared):
            threading.Thread(target=_copy, args=(source, client), daemon=True).start()
        turns = itertools.cycle((own, shared))
        with contextlib.suppress(OSError):
            while packet := _packet(client):
                begins_a_statement = packet[3] == 0 and packet[4] == _QUERY
                (next(turns) if begins_a_statement else own).sendall(packet)

    def close(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for pooled in self._pooled:
            pooled._force_close()  # type: ignore[attr-defined]

    def __enter__(self) -> PoolingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)


def _packet(source: socket.socket) -> bytes:
    """One packet of MySQL's protocol, its header included; empty at the end."""
    header = _exactly(source, 4)
    return header and header + _exactly(source, int.from_bytes(header[:3], "little"))


def _exactly(source: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = source.recv(size - len(received))
        if not piece:
            return b""
        received += piece
    return received
