"""The HTTP side of a relay: /healthz, /readyz, /metrics on its own thread. It must never stop the relay."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from cdc_outbox.ops.log import log_event
from cdc_outbox.ops.metrics import CONTENT_TYPE, Metrics

if TYPE_CHECKING:
    from cdc_outbox.config import HttpSettings

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
MAX_HEADER_BYTES = 16 * 1024
CONNECTION_SECONDS = 10.0
"""Life of a connection: who connects and says nothing must not keep the probes out."""
START_TIMEOUT = 5.0

_HEADERS = [("cache-control", "no-store"), ("x-content-type-options", "nosniff")]

Readiness = Callable[[], tuple[bool, str]]
"""(ready, reason): asked on the HTTP thread for every /readyz, so it must not block."""


def application(metrics: Metrics, ready: Readiness) -> Starlette:
    """The three endpoints; anything but GET and HEAD is refused with 405."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        is_ready, reason = ready()
        return PlainTextResponse(f"{reason}\n", status_code=200 if is_ready else 503)

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", show_metrics)])


class _Protocol(H11Protocol):
    """HTTP/1.1 on a connection that ends in time, whatever its other end does."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # the base says so, too
        super().connection_made(transport)
        self.loop.call_later(CONNECTION_SECONDS, transport.close)


class _Server(uvicorn.Server):
    """Tells another thread when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answering = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.answering.set()


class HealthServer:
    """Started once, stopped once; both may be called whatever happened before.

    address: (host, port) that it listens on once started, None when the port was taken.
    """

    def __init__(self, settings: HttpSettings, metrics: Metrics, ready: Readiness) -> None:
        self.address: tuple[str, int] | None = None
        self._listen = settings.address
        self._application = application(metrics, ready)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        """Listen and answer. False, with an ERROR line, where the address cannot be had."""
        host, port = self._listen
        try:
            listener = _listener(host, port)
        except OSError as error:
            log_event(
                logger,
                logging.ERROR,
                "http_unavailable",
                f"http.listen {host}:{port} cannot be had ({error.strerror or error}): no health, no metrics;"
                " the relay goes on without",
            )
            return False
        self.address = listener.getsockname()[:2]
        self._server = _Server(
            uvicorn.Config(
                self._application,
                http=_Protocol,
                headers=_HEADERS,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MAX_CONNECTIONS,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="http", daemon=True
        )
        self._thread.start()
        return self._server.answering.wait(START_TIMEOUT)

    def stop(self, timeout: float = 3.0) -> None:
        """Close the port and end the thread, waiting for at most `timeout` seconds."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(timeout)


def _listener(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MAX_CONNECTIONS)
    except BaseException:
        listener.close()
        raise
    return listener
