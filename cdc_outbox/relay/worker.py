"""The life of a stage's thread: started once, asked to stop, joined; its first failure is reported, never swallowed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cdc_outbox.errors import Stopped


class Worker:
    """A thread around `run`. Subclasses return from `_run` soon after `request_stop`."""

    def __init__(self, name: str, on_failure: Callable[[BaseException], None]) -> None:
        self._stop = threading.Event()
        self._on_failure = on_failure
        self._thread = threading.Thread(target=self._guarded, name=f"cdc-outbox-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def request_stop(self) -> None:
        self._stop.set()

    def join(self, timeout: float) -> bool:
        """True when the thread has ended, or never began."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            self._run()
        except Stopped:
            pass
        except BaseException as error:
            self._on_failure(error)
        finally:
            self._close()

    def _run(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        """Release what the thread owns; called once, on the thread."""
