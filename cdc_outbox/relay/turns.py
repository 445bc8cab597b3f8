"""Whose turn it is within an aggregate, with `ordering: strict`: one record is out, the others wait. Pure."""

from __future__ import annotations

from collections import deque

from cdc_outbox.model import Aggregate
from cdc_outbox.relay.in_flight import Envelope


class Turns:
    """Used by the relay thread only."""

    def __init__(self) -> None:
        self._lines: dict[Aggregate, deque[Envelope]] = {}
        """Of each aggregate first the one whose turn it is."""

    def take(self, envelope: Envelope) -> bool:
        """True: it may go; False: it waits, until `over` gives it."""
        line = self._lines.setdefault(envelope.event.aggregate, deque())
        if line and line[0] is envelope:
            return True
        line.append(envelope)
        return len(line) == 1

    def over(self, envelope: Envelope) -> Envelope | None:
        """What became of it is known: the next of its aggregate, whose turn it is now."""
        aggregate = envelope.event.aggregate
        line = self._lines.get(aggregate)
        if line is None or line[0] is not envelope:
            return None
        line.popleft()
        if line:
            return line[0]
        del self._lines[aggregate]
        return None

    def end(self) -> list[Envelope]:
        """There are no turns any more; gives all that had one or waited for one."""
        lines, self._lines = self._lines, {}
        return [envelope for line in lines.values() for envelope in line]
