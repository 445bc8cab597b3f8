"""What a consumer loop has in its hands, partition by partition: fetched, held, done, owed. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Place(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Received:
    """One record, whichever client brought it. headers: the last value of each name; timestamp: ms since the epoch."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]
    timestamp: int | None
    raw: Any = field(default=None, repr=False, compare=False)
    """The client's own record."""

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)


@dataclass
class _Partition:
    """due: when its first record may be tried, 0.0 for now. next_offset: what is to be committed, None for nothing."""

    waiting: deque[Received] = field(default_factory=deque)
    due: float = 0.0
    failures: int = 0
    next_offset: int | None = None
    paused: bool = False
    placed: bool = True


class Partitions:
    """The assigned partitions. Times are seconds of any one clock, given by the caller."""

    def __init__(self) -> None:
        self._partitions: dict[Place, _Partition] = {}

    @property
    def empty(self) -> bool:
        """No partition is assigned."""
        return not self._partitions

    # -- rebalance ----------------------------------------------------------------------------------------------------

    def assign(self, places: Iterable[Place], *, placed: bool = True) -> None:
        """placed False: where it stands is still to be looked up, and what arrives until then waits.

        One that we have already is left as it is: the client will not fetch again what waits of it.
        """
        for place in places:
            self._partitions.setdefault(place, _Partition(placed=placed))

    def revoke(self, places: Iterable[Place]) -> None:
        """Forget them: what waits is another consumer's, and nothing of it may be committed."""
        for place in places:
            self._partitions.pop(place, None)

    def not_done(self, places: Iterable[Place]) -> dict[Place, int]:
        """The first offset of each of these partitions that was fetched and is not done."""
        waiting = {place: self._partitions[place].waiting for place in places if place in self._partitions}
        return {place: records[0].offset for place, records in waiting.items() if records}

    def unplaced(self) -> list[Place]:
        return [place for place, one in self._partitions.items() if not one.placed]

    def place(self, place: Place, *, moved: bool) -> None:
        """It is known where the partition stands. moved: elsewhere; what was fetched before is dropped."""
        one = self._partitions.get(place)
        if one is not None:
            one.placed = True
            if moved:
                one.waiting.clear()
                one.paused = False

    # -- records ------------------------------------------------------------------------------------------------------

    def add(self, records: Iterable[Received]) -> None:
        """Take what was fetched; records of partitions that are not ours are dropped."""
        for record in records:
            one = self._partitions.get(record.place)
            if one is not None:
                one.waiting.append(record)

    def ready(self, now: float) -> Iterator[Received]:
        """The first record of each partition that is due, again and again until none is left."""
        progress = True
        while progress:
            progress = False
            for place in list(self._partitions):
                one = self._partitions.get(place)
                if one is not None and one.placed and one.waiting and one.due <= now:
                    progress = True
                    yield one.waiting[0]

    def done(self, record: Received) -> None:
        """The record is done with: its offset may be committed."""
        one = self._partitions.get(record.place)
        if one is not None and one.waiting and one.waiting[0] is record:
            one.waiting.popleft()
            one.next_offset, one.due, one.failures = record.offset + 1, 0.0, 0

    def hold(self, record: Received, until: float, *, failed: bool = False) -> None:
        """The record comes again; its partition waits for it."""
        one = self._partitions.get(record.place)
        if one is not None:
            one.due = until
            one.failures += failed

    def failures(self, record: Received) -> int:
        """How often in a row the record failed, as far as this process knows."""
        one = self._partitions.get(record.place)
        return one.failures if one is not None else 0

    def next_due(self) -> float | None:
        """When the first waiting record is due; None: nothing waits."""
        return min((one.due for one in self._partitions.values() if one.placed and one.waiting), default=None)

    # -- what the client has to do ------------------------------------------------------------------------------------

    def to_pause(self, now: float) -> list[Place]:
        """Partitions whose first record may not be tried yet: they are to fetch no more. Noted as done."""
        found = [
            place
            for place, one in self._partitions.items()
            if one.waiting and not one.paused and (one.due > now or not one.placed)
        ]
        for place in found:
            self._partitions[place].paused = True
        return found

    def to_resume(self) -> list[Place]:
        """Paused partitions with nothing waiting any more. Noted as done."""
        found = [place for place, one in self._partitions.items() if one.paused and not one.waiting]
        for place in found:
            self._partitions[place].paused = False
        return found

    def owed(self, places: Iterable[Place] | None = None) -> dict[Place, int]:
        """Next offsets to commit, of these partitions or of all."""
        chosen = self._partitions if places is None else places
        found = {place: self._partitions[place].next_offset for place in chosen if place in self._partitions}
        return {place: offset for place, offset in found.items() if offset is not None}

    def committed(self, offsets: dict[Place, int]) -> None:
        for place, offset in offsets.items():
            one = self._partitions.get(place)
            if one is not None and one.next_offset == offset:
                one.next_offset = None
