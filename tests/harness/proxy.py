"""A TCP proxy: a fixed address in front of servers that change, and a network that fails in every way it can."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

from cdc_outbox.testing.services.endpoint import free_port

_ANSWER_WITHIN = 10.0
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, 0 seconds: a close sends RST."""

Rewrite = Callable[[bytearray], None]


class Proxy:
    """Passes connections on to a server, until told to fail; `mend` lets new connections pass again.

    `host` and `port` are where it listens, and stay so through a refusal.
    """

    def __init__(self, host: str, port: int, rewrite: Rewrite | None = None) -> None:
        """host, port: the server's. rewrite: changes what the server says first on each connection (a greeting)."""
        self.host, self.port = "127.0.0.1", free_port()
        self._target = (host, port)
        self._rewrite = rewrite
        self._swallows = False
        self._delay = 0.0
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._listener: socket.socket | None = None
        self.mend()

    # -- how the network is -----------------------------------------------------------------------------------

    def mend(self) -> None:
        """New connections pass, at full speed. What was swallowed or cut stays so."""
        self._swallows = False
        self._delay = 0.0
        if self._listener is None:
            self._listener = socket.create_server((self.host, self.port))
            threading.Thread(target=self._accept, args=(self._listener,), name="proxy", daemon=True).start()

    def cut(self) -> None:
        """Reset every connection that there is, at both ends; new ones pass."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.reset()

    def refuse(self) -> None:
        """Nobody listens any more: new connections are refused, the old ones are cut."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def swallow(self) -> None:
        """As a firewall that forgot its connections: all stay open, nothing passes either way, not even their end.

        New ones are accepted and get no answer.
        """
        self._swallows = True
        self.forget()

    def forget(self, *ports: int) -> None:
        """Connections that there are are swallowed; new ones pass. ports: which, as the server sees them; else all."""
        with self._lock:
            for link in self._links:
                if not ports or link.port in ports:
                    link.swallowed = True

    def delay(self, seconds: float) -> None:
        """Whatever is sent comes later by this."""
        self._delay = seconds

    def lead_to(self, host: str, port: int) -> None:
        """Another server is behind this address from now on."""
        self._target = (host, port)
        self.cut()

    @property
    def ports(self) -> list[int]:
        """Of the connections that there are, as the server sees them."""
        with self._lock:
            return [link.port for link in self._links]

    # -- connections ------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        for client in _accepted(listener):
            try:
                server = socket.create_connection(self._target, timeout=_ANSWER_WITHIN)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            link = _Link(client, server, self._swallows)
            with self._lock:
                self._links.add(link)
            threading.Thread(target=self._pass, args=(link, client, server, None), daemon=True).start()
            threading.Thread(target=self._pass, args=(link, server, client, self._rewrite), daemon=True).start()

    def _pass(self, link: _Link, source: socket.socket, sink: socket.socket, rewrite: Rewrite | None) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if rewrite is not None:
                    greeting = bytearray(piece)
                    rewrite(greeting)
                    piece, rewrite = bytes(greeting), None
                if self._delay:
                    self._over.wait(self._delay)
                if not link.swallowed:
                    sink.sendall(piece)
        if not link.swallowed:
            link.end()
            with self._lock:
                self._links.discard(link)

    def close(self) -> None:
        self._over.set()
        self.refuse()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Link:
    """The two connections that make one."""

    def __init__(self, client: socket.socket, server: socket.socket, swallowed: bool) -> None:
        self._both = (client, server)
        self.port: int = server.getsockname()[1]
        self.swallowed = swallowed

    def end(self) -> None:
        """In good order, as one of the two ends did; wakes the thread that reads the other."""
        for one in self._both:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def reset(self) -> None:
        for one in self._both:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                one.shutdown(socket.SHUT_RD)  # wakes the thread that reads it, and says nothing to the other end
            one.close()


def _accepted(listener: socket.socket) -> Iterator[socket.socket]:
    with contextlib.suppress(OSError):  # closed
        while True:
            yield listener.accept()[0]
