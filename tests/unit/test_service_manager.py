"""sd_notify on a real datagram socket: what systemd hears, and that nobody listening is no trouble."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_outbox.ops.service_manager import ServiceManager


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(5)
        yield listener


def heard(systemd: socket.socket) -> str:
    return systemd.recv(1000).decode()


def test_ready_once_then_only_the_status(systemd: socket.socket) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": systemd.getsockname()})
    manager.ready("standby")
    manager.ready("leader")
    manager.stopping()
    assert [heard(systemd) for _ in range(3)] == [
        "READY=1\nSTATUS=standby",
        "STATUS=leader",
        "STOPPING=1\nSTATUS=stopping",
    ]


def test_signs_of_life_as_long_as_it_is_alive(systemd: socket.socket) -> None:
    alive = True
    manager = ServiceManager({"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "20000"})
    manager.watch(lambda: alive)
    assert {heard(systemd) for _ in range(3)} == {"WATCHDOG=1"}
    alive = False
    systemd.settimeout(0.3)
    with pytest.raises(TimeoutError):
        for _ in range(100):  # one may have been on its way
            heard(systemd)
    manager.close()


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/notify"}, {"NOTIFY_SOCKET": "@nobody"}])
def test_nobody_listens(environ: dict[str, str]) -> None:
    manager = ServiceManager({**environ, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    manager.watch(lambda: True)
    manager.ready("leader")
    manager.stopping()
    manager.close()


def test_a_manager_that_does_not_read_is_not_waited_for(systemd: socket.socket) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": systemd.getsockname()})
    for _ in range(5000):
        manager.ready("leader")
    assert heard(systemd) == "READY=1\nSTATUS=leader"
