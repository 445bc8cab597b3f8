"""How handlers and hooks are called: here, in an event loop of their own, or from a thread on a running event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

Call = Callable[[Callable[..., Any], tuple[Any, ...]], Any]
"""Calls the first with the second, waits for it if it is async, and gives its value."""


def call_here(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call it on this thread; what is awaitable gets an event loop of its own."""
    value = function(*args)
    if not inspect.isawaitable(value):
        return value
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_await(value))
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError("the handler is async and an event loop runs here: use process_async or run_async")


@contextlib.contextmanager
def one_event_loop() -> Iterator[Call]:
    """Calls on this thread; what is awaitable runs in one event loop, the same for all calls."""
    with asyncio.Runner() as runner:

        def call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            value = function(*args)
            return runner.run(_await(value)) if inspect.isawaitable(value) else value

        yield call


async def _await(value: Any) -> Any:
    return await value


class _Cancelled(BaseException):
    """The handler was cancelled with the task that waits for it: no failure of the event, so no Exception."""


class Bridge:
    """Runs something on a thread while the handlers it calls run on this event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_cancel: Callable[[], None] | None = None) -> None:
        self._loop = loop
        self._on_cancel = on_cancel
        self._cancelled = False
        self._task: asyncio.Task[Any] | None = None

    def call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """On the thread: call a plain function here, run a coroutine function on the loop."""
        value = function(*args)
        if not inspect.isawaitable(value):
            return value
        try:
            return asyncio.run_coroutine_threadsafe(self._as_task(value), self._loop).result()
        except concurrent.futures.CancelledError as error:
            if self._cancelled:
                raise _Cancelled from error
            raise

    async def _as_task(self, value: Any) -> Any:
        self._task = asyncio.ensure_future(_await(value))
        if self._cancelled:
            self._task.cancel()
        try:
            return await self._task
        finally:
            self._task = None

    async def run(self, work: Callable[[], Any]) -> Any:
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._cancelled = True
            if self._on_cancel is not None:
                self._on_cancel()
            if self._task is not None:
                self._task.cancel()
            # The thread has a transaction or a lease in its hands: it is waited for.
            with suppress(Exception, asyncio.CancelledError, _Cancelled):
                await running
            raise
