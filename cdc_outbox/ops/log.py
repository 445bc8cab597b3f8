"""The log: its set-up, one way to write an event with a stable name, and alerts that cannot flood it."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from cdc_outbox.config import LogSettings

OURS = "cdc_outbox"
ALERT_INTERVAL = 60.0
"""Seconds between two lines of one kind and topic."""
MAX_TOPICS = 50
"""Topics of one kind with lines of their own; they come from rows, and a misused table must not flood the log."""
OTHERS = "others"

_RESERVED = ("time", "level", "event", "message", "logger", "exception")


def configure_logging(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send everything to `stream` (default: standard error) in the configured format.

    Only our own loggers follow log.level. Libraries stay at warnings: some of them log connection parameters,
    passwords included, at lower levels.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OURS).setLevel(settings.level.upper())
    # A log that nobody reads any more (a closed pipe) must not stop the relay.
    logging.raiseExceptions = False


def log_event(logger: logging.Logger, level: int, event: str, message: str, /, **fields: object) -> None:
    """Write one line. event: a stable name such as `leader_elected`; fields: what a machine may read."""
    logger.log(level, "%s", message, extra={"event": event, "fields": fields}, stacklevel=2)


def log_exception(logger: logging.Logger, event: str, message: str, /, **fields: object) -> None:
    """Write one ERROR line followed by the traceback of the exception that is being dealt with."""
    extra = {"event": event, "fields": fields}
    logger.error("%s", message, exc_info=True, extra=extra, stacklevel=2)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO    leader_elected: This relay leads epoch=4`, one line each."""

    def format(self, record: logging.LogRecord) -> str:
        event = getattr(record, "event", None) or record.name
        fields = "".join(f" {key}={_plain(value)}" for key, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {event}: {_one_line(record.getMessage())}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, event, message, logger, the fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", None) or "log",
            "message": record.getMessage(),
            "logger": record.name,
        }
        line.update({key: value for key, value in _fields(record).items() if key not in _RESERVED})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str:
    text = _one_line(str(value))
    return json.dumps(text, ensure_ascii=False) if not text or any(one in text for one in ' "=') else text


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


@dataclass
class _Group:
    written_at: float
    held_back: int = 0


class Alerts:
    """ERROR lines that call for a person, grouped: one line a minute for each kind and topic.

    Of one kind MAX_TOPICS topics have lines of their own, the rest share one of topic `others`.
    count is called with the kind of every alert, written or held back. Usable from any thread.
    """

    def __init__(
        self,
        count: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._logger = logging.getLogger(f"{OURS}.alerts")
        self._clock = clock
        self._groups: dict[tuple[str, str | None], _Group] = {}
        self._lock = threading.Lock()

    def alert(self, kind: str, message: str, topic: str | None = None, **fields: object) -> None:
        """kind: the stable name, of the log line and of the metric. Payloads must not be among the fields."""
        self._count(kind)
        now = self._clock()
        with self._lock:
            if (kind, topic) not in self._groups and sum(one == kind for one, _ in self._groups) >= MAX_TOPICS:
                topic = OTHERS
            group = self._groups.get((kind, topic))
            if group is not None and now - group.written_at < ALERT_INTERVAL:
                group.held_back += 1
                return
            self._groups[kind, topic] = _Group(now)
        if topic is not None:
            fields["topic"] = topic
        if group is not None and group.held_back:
            fields["held_back"] = group.held_back
        log_event(self._logger, logging.ERROR, kind, message, **fields)

    def flush(self, *, everything: bool = False) -> None:
        """Say how many were held back where the minute is over (everything: at once). Cheap when idle."""
        now = self._clock()
        with self._lock:
            over = {
                key: group
                for key, group in self._groups.items()
                if everything or now - group.written_at >= ALERT_INTERVAL
            }
            for key in over:
                del self._groups[key]
            for key, group in over.items():
                if group.held_back and not everything:
                    self._groups[key] = _Group(now)
        for (kind, topic), group in over.items():
            if group.held_back:
                fields: dict[str, object] = {} if topic is None else {"topic": topic}
                log_event(
                    self._logger,
                    logging.ERROR,
                    kind,
                    f"{group.held_back} more of this kind",
                    held_back=group.held_back,
                    **fields,
                )
