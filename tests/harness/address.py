"""A fixed address in front of servers that change: what a DNS name or a virtual IP is to a relay."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import TracebackType

_ANSWER_WITHIN = 10.0


class Address:
    """Passes connections to whichever server it leads to; `lead_to` cuts those that there are."""

    def __init__(self, port: int) -> None:
        """port: of the first server, on this machine."""
        self._target = port
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        threading.Thread(target=self._accept, name="address", daemon=True).start()

    def lead_to(self, port: int) -> None:
        with self._lock:
            self._target = port
            cut, self._open = self._open, set()
        for one in cut:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        for client in self._clients():
            with self._lock:
                target = self._target
            try:
                server = socket.create_connection(("127.0.0.1", target), timeout=_ANSWER_WITHIN)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._join, args=(client, server), daemon=True).start()

    def _clients(self) -> Iterator[socket.socket]:
        with contextlib.suppress(OSError):  # closed
            while True:
                yield self._listener.accept()[0]

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
        back.start()
        _pass_on(client, server)
        back.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.lead_to(self._target)

    def __enter__(self) -> Address:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
