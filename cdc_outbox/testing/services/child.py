"""One service as a child of ours, in a group of its own: started, stopped, killed, paused; never left behind.

Whatever way the starter ends, the child ends: `atexit` for a normal end, guard.py for kill -9.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cdc_outbox.testing.services.endpoint import wait_until
from cdc_outbox.testing.services.words import Unavailable

FREEZE_DEADLINE = 5.0
STOP_DEADLINE = 20.0
"""Seconds a service gets to end by itself before it is killed."""


class Child:
    """A command that runs until it is told to stop. log: the file its output is appended to."""

    def __init__(self, command: Sequence[str], *, log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.log = log
        self._environ = None if environ is None else dict(environ)
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; nothing happens when it runs already. Raises OSError when the command cannot be run."""
        if self.alive:
            return
        _guard.still_open()
        with self.log.open("ab") as output:
            self._running = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environ,
                start_new_session=True,  # Ctrl-C in the terminal is for us: we stop the service in good order
            )
        _children.add(self)
        try:
            _guard.tell(f"+{self._running.pid}")
        except RuntimeError:
            self._signal(signal.SIGKILL)
            raise

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.poll() is None

    @property
    def pid(self) -> int:
        """Raises LookupError when it does not run."""
        if self._running is None or not self.alive:
            raise LookupError("the service does not run")
        return self._running.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._running is None else self._running.poll()

    def stop(self, *, deadline: float = STOP_DEADLINE) -> None:
        """End it in good order (SIGTERM); after `deadline` seconds it is killed."""
        if self._running is None:
            return
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._running.wait(deadline)
        self.kill()

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would; waits until it is gone."""
        if self._running is None:
            return
        self._signal(signal.SIGKILL)
        self._running.wait()
        _children.discard(self)
        _guard.forget(f"-{self._running.pid}")
        self._running = None

    def pause(self) -> None:
        """Freeze it (SIGSTOP): it stays connected and answers nothing. Returns when its last thread has stopped."""
        self._signal(signal.SIGSTOP)
        wait_until(lambda: self._frozen() or not self.alive, seconds=FREEZE_DEADLINE, pause=0.005)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def last_lines(self, count: int = 12) -> str:
        """The end of its log, for an error message."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        return ""

    def _frozen(self) -> bool:
        if not hasattr(os, "waitid"):  # some macOS: there is no telling
            return True
        with contextlib.suppress(ChildProcessError, LookupError):
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def _signal(self, number: int) -> None:
        if self._running is not None and self._running.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, number)


class PrivateFolder:
    """A folder that is gone when we are: made under the system's temporary folder, or `under` another one."""

    def __init__(self, name: str, *, under: Path | None = None) -> None:
        if under is not None:
            under.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix=f"cdc-outbox-{name}-", dir=under))
        _guard.tell(f"folder {self.path}")
        _folders.add(self)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        _guard.forget(f"keep {self.path}")
        _folders.discard(self)


class _Guard:
    """Our line to guard.py, which is started with the first thing to watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watcher: subprocess.Popen[str] | None = None
        self._closed = False

    def still_open(self) -> None:
        """Raises RuntimeError once the program is ending: its threads must start nothing more."""
        if self._closed:
            raise RuntimeError("the program is ending")

    def tell(self, text: str) -> None:
        with self._lock:
            self.still_open()
            if self._watcher is None:
                self._watcher = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,
                )
            assert self._watcher.stdin is not None
            self._watcher.stdin.write(text + "\n")
            self._watcher.stdin.flush()

    def forget(self, text: str) -> None:
        """Like tell, but nothing happens when the program is ending."""
        with contextlib.suppress(RuntimeError):
            self.tell(text)

    def shut(self) -> None:
        """From now on nothing more is started."""
        with self._lock:
            self._closed = True

    def close(self) -> None:
        """Leave the rest to the guard: what is still named to it ends now."""
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()
            self._watcher.wait(10)
            self._watcher = None


_starter = os.getpid()
_children: set[Child] = set()
_commands: set[subprocess.Popen[str]] = set()
_folders: set[PrivateFolder] = set()
_guard = _Guard()


def finish(
    command: Sequence[str], *, deadline: float, environ: Mapping[str, str] | None = None, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a short command to its end, guarded like a service. given: its input. Raises Unavailable where it cannot."""
    _guard.still_open()
    try:
        running = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if environ is None else dict(environ),
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(f"{command[0]} cannot be run: {error.strerror}") from error
    with running:
        _commands.add(running)
        try:
            _guard.tell(f"+{running.pid}")
            output, errors = running.communicate(given, timeout=deadline)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{command[0]} did not end within {deadline:.0f} s") from None
        finally:
            _end_group(running)
            _commands.discard(running)
            _guard.forget(f"-{running.pid}")
    return subprocess.CompletedProcess(list(command), running.returncode, output, errors)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Inside the block SIGTERM and SIGHUP raise KeyboardInterrupt like Ctrl-C: an ordinary end follows."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def _end_group(running: subprocess.Popen[str]) -> None:
    if running.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@atexit.register
def end_all() -> None:
    """Kill what still runs and remove the private folders. Called at exit; safe to call before."""
    if os.getpid() != _starter:  # a fork of the starter owns nothing
        return
    _guard.shut()
    for command in list(_commands):
        _end_group(command)
    for child in list(_children):
        child.kill()
    for folder in list(_folders):
        folder.remove()
    _guard.close()
