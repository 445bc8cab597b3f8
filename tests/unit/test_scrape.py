"""Asking the relay on this host: whoever else answers there, or nobody, is no error."""

from __future__ import annotations

import re
import socket
import threading

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.ops.metrics import Metrics
from cdc_outbox.ops.scrape import ask_leader


def settings(listen: str | None) -> Settings:
    return Settings.model_validate(
        {
            "name": "orders",
            "mysql": {"user": "u", "password": "p", "database": "shop"},
            "kafka": {"bootstrap_servers": "localhost:9092"},
            "http": None if listen is None else {"listen": listen},
        }
    )


def answering(body: bytes) -> tuple[str, threading.Thread]:
    """Somebody who gives this answer once; where they listen."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(body)

    thread = threading.Thread(target=answer)
    thread.start()
    return f"127.0.0.1:{listener.getsockname()[1]}", thread


@pytest.mark.parametrize(
    "body",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe{ no metrics",
        b"HTTP/1.1 200 OK\r\n\r\ncdc_outbox_leader{relay=",
    ],
    ids=["ssh", "nothing", "404", "no text", "half a line"],
)
def test_somebody_else_there_is_nobody(body: bytes) -> None:
    listen, thread = answering(body)
    assert ask_leader(settings(listen)) is None
    thread.join(10)


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask_leader(settings("127.0.0.1:9")) is None
    assert ask_leader(settings(None)) is None


@pytest.mark.parametrize(("relay", "leads", "found"), [("orders", 1, True), ("orders", 0, False), ("other", 1, False)])
def test_only_the_leader_of_that_name_is_believed(relay: str, leads: int, found: bool) -> None:
    metrics = Metrics(relay)
    metrics.leader.set(leads)
    metrics.in_flight.set(7)
    metrics.hold("kafka", True)
    listen, thread = answering(b"HTTP/1.1 200 OK\r\n\r\n" + metrics.text())
    live = ask_leader(settings(listen))
    thread.join(10)
    assert (live is not None) == found
    if live is not None:
        assert (live.in_flight, live.holds) == (7, ["kafka"])


@pytest.mark.parametrize(("instead", "told"), [('decoder="its own"', "its own"), ("", None)])
def test_the_decoder_is_the_leaders_own_word(instead: str, told: str | None) -> None:
    metrics = Metrics("orders")
    metrics.leader.set(1)
    listen, thread = answering(b"HTTP/1.1 200 OK\r\n\r\n" + re.sub(rb'decoder="\w+"', instead.encode(), metrics.text()))
    live = ask_leader(settings(listen))
    thread.join(10)
    assert live is not None
    assert live.decoder == told
