"""HTTP on real sockets: the three paths, what is refused, a port that is taken, a clean end; and the metrics' text."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from cdc_outbox.config import HttpSettings
from cdc_outbox.ops import health
from cdc_outbox.ops.health import MAX_CONNECTIONS, MAX_HEADER_BYTES, HealthServer
from cdc_outbox.ops.metrics import Metrics


class Relay:
    """Stands for what /readyz asks."""

    answer = (True, "leader")


@pytest.fixture
def relay() -> Relay:
    return Relay()


@pytest.fixture
def server(relay: Relay) -> Iterator[HealthServer]:
    server = HealthServer(HttpSettings(listen="127.0.0.1:0"), Metrics("orders"), lambda: relay.answer)
    assert server.start()
    yield server
    server.stop()


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    assert server.address is not None
    connection = http.client.HTTPConnection(*server.address, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_alive(server: HealthServer) -> None:
    status, headers, body = ask(server, "/healthz")
    assert (status, body) == (200, b"ok\n")
    assert "server" not in headers
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


def test_ready_says_why_not(server: HealthServer, relay: Relay) -> None:
    assert ask(server, "/readyz")[::2] == (200, b"leader\n")
    relay.answer = (False, "holding: kafka")
    assert ask(server, "/readyz")[::2] == (503, b"holding: kafka\n")


def test_metrics(server: HealthServer) -> None:
    status, headers, body = ask(server, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b'cdc_outbox_events_total{outcome="sent",relay="orders"} 0.0' in body


def test_head_is_answered_and_anything_else_refused(server: HealthServer) -> None:
    assert ask(server, "/healthz", "HEAD")[::2] == (200, b"")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert ask(server, "/metrics", method)[0] == 405
    assert ask(server, "/")[0] == 404


def test_endless_headers_are_refused(server: HealthServer) -> None:
    assert server.address is not None
    with socket.create_connection(server.address, timeout=5) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nx: " + b"a" * (MAX_HEADER_BYTES * 4))
        assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_who_connects_and_says_nothing_keeps_nobody_out(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CONNECTION_SECONDS", 0.3)
    assert server.address is not None
    silent = [socket.create_connection(server.address, timeout=5) for _ in range(MAX_CONNECTIONS)]
    try:
        silent[0].sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        for one in silent:
            assert one.recv(100) == b""  # closed by the other end
    finally:
        for one in silent:
            one.close()
    assert ask(server, "/healthz")[0] == 200


def test_a_body_is_not_read(server: HealthServer) -> None:
    assert server.address is not None
    with socket.create_connection(server.address, timeout=5) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_stop_frees_the_port_and_ends_the_thread(server: HealthServer) -> None:
    ask(server, "/healthz")
    address = server.address
    assert address is not None
    server.stop()
    assert not any(thread.name == "http" for thread in threading.enumerate())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5)
    server.stop()


def test_a_taken_port_is_an_error_line_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        server = HealthServer(HttpSettings(listen=listen), Metrics("x"), lambda: (True, ""))
        assert not server.start()
        server.stop()
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert vars(record)["event"] == "http_unavailable"
    assert f"http.listen {listen} cannot be had (Address already in use)" in record.getMessage()


def test_a_host_that_is_not_ours_is_an_error_line_too(caplog: pytest.LogCaptureFixture) -> None:
    server = HealthServer(HttpSettings(listen="no-such-host.invalid:1"), Metrics("x"), lambda: (True, ""))
    assert not server.start()
    assert "http_unavailable" in {vars(record).get("event") for record in caplog.records}


def test_two_relays_in_one_process_do_not_share_metrics() -> None:
    one, two = Metrics("one"), Metrics("two")
    one.events["sent"].inc(3)
    one.hold("kafka", True)
    one.alert("dead_letter")
    text = one.text().decode()
    assert 'cdc_outbox_events_total{outcome="sent",relay="one"} 3.0' in text
    assert 'cdc_outbox_hold{reason="kafka",relay="one"} 1.0' in text
    assert 'cdc_outbox_alerts_total{kind="dead_letter",relay="one"} 1.0' in text
    assert "_created" not in text
    assert 'cdc_outbox_events_total{outcome="sent",relay="two"} 0.0' in two.text().decode()


def test_a_relay_that_follows_alarms_nobody() -> None:
    metrics = Metrics("x")
    metrics.leader.set(1)
    metrics.oldest_commit = 1
    metrics.keeps_binlogs(86_400)
    metrics.dead_events.set(7)
    metrics.hold("paused", True)
    metrics.hold("topic", True)
    assert metrics.lag() > 86_400
    assert 'cdc_outbox_binlog_retention_left_seconds{relay="x"} 0.0' in metrics.text().decode()
    metrics.follow()
    text = metrics.text().decode()
    for name in ("leader", "lag_seconds", "dead_events"):
        assert f'cdc_outbox_{name}{{relay="x"}} 0.0' in text
    assert "cdc_outbox_binlog_retention_left_seconds{" not in text
    assert not [line for line in text.splitlines() if line.startswith("cdc_outbox_hold{") and line.endswith(" 1.0")]


def test_the_lag_grows_through_a_hold_and_what_is_kept_shrinks() -> None:
    metrics = Metrics("x")
    metrics.keeps_binlogs(1000)
    metrics.oldest_commit = int(time.time() * 1000) - 400_000
    assert 400 <= metrics.lag() < 460
    sample = next(line for line in metrics.text().decode().splitlines() if line.startswith("cdc_outbox_binlog_ret"))
    assert 540 < float(sample.split()[-1]) <= 600
    metrics.keeps_binlogs(None)
    assert "cdc_outbox_binlog_retention_left_seconds{" not in metrics.text().decode()
