"""A simulated clock, and threads that move one step at a time, in an order that the test chooses.

Each thread is a greenlet. It runs until it waits (an event, a queue, a lock, an SQL statement about to be executed)
and goes on when the test says so. What the relay's modules import as `time`, `threading` and `queue` is replaced by the
classes here while a simulation runs.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet


class Killed(BaseException):
    """The process of this thread is gone."""


class Process:
    """What dies, freezes and wakes as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frozen = False
        self.dead = False


class Task:
    """One simulated thread."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str, target: Callable[[], None]) -> None:
        self.process = process
        self.name = name
        self.ready: Callable[[], bool] = lambda: True
        self.deadline = -math.inf
        self.greenlet = greenlet(lambda: self._run(target), parent=scheduler.hub)

    def _run(self, target: Callable[[], None]) -> None:
        with contextlib.suppress(Killed):
            target()

    @property
    def ended(self) -> bool:
        return bool(self.greenlet.dead)

    def runnable(self, now: float) -> bool:
        return not (self.ended or self.process.frozen or self.process.dead) and (now >= self.deadline or self.ready())


class Scheduler:
    """Time and tasks. Only the hub, the test itself, moves either."""

    def __init__(self) -> None:
        self.hub = getcurrent()
        self.now = 1_000_000.0
        self.tasks: list[Task] = []
        self.current: Task | None = None

    def spawn(self, process: Process, name: str, target: Callable[[], None]) -> Task:
        task = Task(self, process, name, target)
        self.tasks = [one for one in self.tasks if not one.ended]
        self.tasks.append(task)
        return task

    def runnable(self) -> list[Task]:
        return [task for task in self.tasks if task.runnable(self.now)]

    def step(self, task: Task) -> None:
        """Let the task go on until it waits again."""
        self.current = task
        try:
            task.greenlet.switch()
        finally:
            self.current = None

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Give way until `ready` or the timeout, in seconds; the answer of `ready`. Called by tasks."""
        task = self.current
        if task is None:
            return ready()  # the test's own statements
        if task.process.dead:
            raise Killed
        task.ready = ready
        task.deadline = math.inf if timeout is None else self.now + timeout
        self.hub.switch()
        if task.process.dead:
            raise Killed
        return ready()

    def give_way(self) -> None:
        """Let others go first."""
        self.wait(lambda: True)

    def kill(self, process: Process) -> None:
        """The process is gone between two instructions: nothing of it runs any more but the unwinding of its stacks."""
        process.dead = True
        for task in [one for one in self.tasks if one.process is process]:
            if task.greenlet and not task.ended:
                self.current = task
                with contextlib.suppress(Exception, Killed):
                    task.greenlet.throw(Killed)
                self.current = None
        self.tasks = [one for one in self.tasks if one.process is not process]

    def next_deadline(self) -> float:
        """When the first of the waiting tasks times out."""
        waiting = [t.deadline for t in self.tasks if not (t.ended or t.process.frozen or t.process.dead)]
        return min((one for one in waiting if one > self.now), default=math.inf)


class SimulatedTime:
    """Stands for the module `time`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return self._scheduler.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self._scheduler.wait(lambda: False, seconds)


class SimulatedThreading:
    """Stands for the module `threading`. Locks stay real: no task gives way while it holds one."""

    Lock = threading.Lock
    RLock = threading.RLock

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Event(self) -> Event:
        return Event(self._scheduler)

    def Condition(self) -> Condition:
        return Condition(self._scheduler)

    def Thread(self, target: Callable[[], None], name: str, daemon: bool) -> Thread:
        return Thread(self._scheduler, target, name)


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._scheduler.wait(self.is_set, timeout)


class Condition:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *error: object) -> None: ...

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        return predicate() or self._scheduler.wait(predicate, timeout)

    def notify_all(self) -> None: ...


class Thread:
    def __init__(self, scheduler: Scheduler, target: Callable[[], None], name: str) -> None:
        assert scheduler.current is not None, "threads are begun by the relay only"
        self._scheduler = scheduler
        self._process = scheduler.current.process
        self._target = target
        self.name = name
        self.ident: int | None = None
        self._task: Task | None = None

    def start(self) -> None:
        self.ident = id(self)
        self._task = self._scheduler.spawn(self._process, self.name, self._target)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    def join(self, timeout: float | None = None) -> None:
        self._scheduler.wait(lambda: not self.is_alive(), timeout)


class SimulatedQueues:
    """Stands for the module `queue`."""

    Empty = queue.Empty

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def SimpleQueue(self) -> SimpleQueue:
        return SimpleQueue(self._scheduler)


class SimpleQueue:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: deque[Any] = deque()

    def put(self, item: object) -> None:
        self._items.append(item)

    def get(self, timeout: float | None = None) -> Any:
        if not self._scheduler.wait(lambda: bool(self._items), timeout):
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise queue.Empty
        return self._items.popleft()
