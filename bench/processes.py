"""What /proc tells of a process: its CPU time, its peak memory, who listens on a port. Linux only."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_LISTENING = "0A"


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far. Raises OSError when it does not run."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def threads_cpu_seconds(pid: int, name: str) -> float:
    """User and system time so far of the threads that have this in their name and still run."""
    total = 0
    for folder in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            named, _, rest = (folder / "stat").read_text().rpartition(")")
            fields = rest.split()
            total += int(fields[11]) + int(fields[12]) if name in named else 0
    return total / _TICKS


def thread_cpu_seconds(pid: int, thread: int) -> float:
    """The time that one thread was on a core so far, to the nanosecond. Raises OSError when it has ended."""
    return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0]) / 1e9


def peak_rss(pid: int) -> int:
    """The most memory that it ever had resident, in bytes. Raises OSError when it does not run."""
    return peak_of(Path(f"/proc/{pid}/status").read_text())


def peak_of(status: str) -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise OSError("/proc has no VmHWM")
    return int(found[1]) * 1024


def listener(port: int) -> int | None:
    """The pid that listens on this TCP port of this machine; None when it is another user's, or a container's."""
    sockets: set[str] = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        with contextlib.suppress(OSError):
            sockets |= listening_sockets(table.read_text().splitlines()[1:], port)
    for folder in Path("/proc").glob("[0-9]*"):
        if any(opened in sockets for opened in open_files(int(folder.name))):
            return int(folder.name)
    return None


def listening_sockets(lines: Iterable[str], port: int) -> set[str]:
    """`socket:[inode]` of each listener on `port` in lines of /proc/net/tcp."""
    rows = [line.split() for line in lines]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port}


def open_files(pid: int) -> list[str]:
    """What its file descriptors stand for; empty when it may not be looked into."""
    opened: list[str] = []
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                opened.append(str(descriptor.readlink()))
    return opened


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
