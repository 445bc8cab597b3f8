"""What every provider hands out: a server that can be stopped and hurt; its native form, a child of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from cdc_outbox.testing.services.child import Child, PrivateFolder
from cdc_outbox.testing.services.endpoint import Endpoint, wait_until
from cdc_outbox.testing.services.words import Unavailable

START_DEADLINE = 90.0
"""Seconds until a server that was started must answer."""

EndpointT = TypeVar("EndpointT", bound=Endpoint)


class Server(Protocol[EndpointT]):
    """A server of our own. Its port and what it stores stay the same from the first start() to remove()."""

    endpoint: EndpointT
    port: int

    @property
    def alive(self) -> bool: ...

    @property
    def outage(self) -> tuple[str, str]:
        """Two shell commands, for a person who wants to see an outage: freeze it, let it go on."""

    def start(self) -> None:
        """Start it and wait until it answers. Raises Unavailable."""

    def stop(self) -> None:
        """End it in good order."""

    def kill(self) -> None:
        """End it at once, as a crash would."""

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered."""

    def resume(self) -> None: ...

    def restart(self) -> None: ...

    def remove(self) -> None:
        """End it for good, with everything it stored."""


class NativeServer(Generic[EndpointT]):
    """A Server that runs `command` in a group of its own. prepare: called once, before the first start."""

    def __init__(
        self,
        name: str,
        endpoint: EndpointT,
        *,
        port: int,
        folder: PrivateFolder,
        command: Sequence[str],
        prepare: Callable[[], None],
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self.port = port
        self.log: Path = folder.path / f"{name}.log"
        self._folder = folder
        self._child = Child(command, log=self.log)
        self._prepare: Callable[[], None] | None = prepare

    def start(self) -> None:
        if self._prepare is not None:
            self._prepare()
            self._prepare = None
        self._child.start()
        wait_until(lambda: self.endpoint.answers() or not self._child.alive, seconds=START_DEADLINE)
        if not (self._child.alive and self.endpoint.answers()):
            why = self._child.last_lines()
            self.kill()
            raise Unavailable(f"{self.name} did not start:\n{why}")

    def stop(self) -> None:
        self._child.stop()

    def kill(self) -> None:
        self._child.kill()

    def pause(self) -> None:
        self._child.pause()

    def resume(self) -> None:
        self._child.resume()

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        self._child.kill()
        self._folder.remove()

    @property
    def alive(self) -> bool:
        return self._child.alive

    @property
    def outage(self) -> tuple[str, str]:
        return f"kill -STOP {self.pid}", f"kill -CONT {self.pid}"

    @property
    def pid(self) -> int:
        """Raises LookupError when it does not run."""
        return self._child.pid
