"""GTID sets: their text form and their algebra. The wire forms live in binlog.gtid_wire."""

from __future__ import annotations

import re
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class GtidRange(NamedTuple):
    """GTIDs first..last (both included) of one source; source is `uuid` or `uuid:tag`, lower case."""

    source: str
    first: int
    last: int


_TAG = re.compile(r"^[a-z_][a-z0-9_]{0,31}$")
_INTERVAL = re.compile(r"^(\d+)(?:-(\d+))?$")


def _last_of(span: list[int]) -> int:
    return span[1]


class GtidSet:
    """A mutable set of GTIDs, kept as sorted disjoint intervals per source.

    The usual change, the next GTID of a known source, costs O(1); a set read in order, O(n).
    """

    __slots__ = ("_intervals",)

    def __init__(self, ranges: Iterable[GtidRange] = ()) -> None:
        self._intervals: dict[str, list[list[int]]] = {}
        for one in ranges:
            self.add(one)

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Read MySQL's text form, tags included. Raises ValueError naming the part that is wrong."""
        result = cls()
        for part in re.split(r"[,\s]*,[,\s]*", text.strip().strip(",").replace("\n", "")):
            if not part.strip():
                continue
            head, *rest = (piece.strip().lower() for piece in part.split(":"))
            try:
                sid = str(uuid.UUID(head))
            except ValueError:
                raise ValueError(f"'{head}' is not a server UUID") from None
            source = sid
            if not rest:
                raise ValueError(f"'{part.strip()}' names no transaction")
            for piece in rest:
                interval = _INTERVAL.match(piece)
                if interval:
                    first, last = int(interval[1]), int(interval[2] or interval[1])
                    if not 1 <= first <= last < 2**63:
                        raise ValueError(f"'{piece}' is not an interval")
                    result.add(GtidRange(source, first, last))
                elif _TAG.match(piece):
                    source = f"{sid}:{piece}"
                else:
                    raise ValueError(f"'{piece}' is neither an interval nor a tag")
        return result

    def add(self, one: GtidRange) -> None:
        first, last = one.first, one.last
        spans = self._intervals.get(one.source)
        if spans is None:
            self._intervals[one.source] = [[first, last]]
            return
        tail = spans[-1]
        if tail[0] <= first <= tail[1] + 1:
            tail[1] = max(tail[1], last)
            return
        if first > tail[1]:
            spans.append([first, last])
            return
        begin = end = bisect_left(spans, first - 1, key=_last_of)  # the first that it touches, or lies before
        while end < len(spans) and spans[end][0] <= last + 1:
            first, last = min(first, spans[end][0]), max(last, spans[end][1])
            end += 1
        spans[begin:end] = [[first, last]]

    def update(self, other: Iterable[GtidRange]) -> None:
        for one in other:
            self.add(one)

    def copy(self) -> GtidSet:
        result = GtidSet()
        result._intervals = {source: [list(s) for s in spans] for source, spans in self._intervals.items()}
        return result

    def union(self, other: GtidSet) -> GtidSet:
        result = self.copy()
        result.update(other)
        return result

    def difference(self, other: GtidSet) -> GtidSet:
        """What is in this set and not in the other."""
        result = GtidSet()
        for source, spans in self._intervals.items():
            theirs = other._intervals.get(source, [])
            for first, last in spans:
                left = first
                at = bisect_left(theirs, first, key=_last_of)
                while at < len(theirs) and theirs[at][0] <= last:
                    begin, end = theirs[at]
                    if begin > left:
                        result.add(GtidRange(source, left, begin - 1))
                    left = end + 1
                    at += 1
                if left <= last:
                    result.add(GtidRange(source, left, last))
        return result

    def issubset(self, other: GtidSet) -> bool:
        for source, spans in self._intervals.items():
            theirs = other._intervals.get(source, [])
            index = 0
            for first, last in spans:
                while index < len(theirs) and theirs[index][1] < first:
                    index += 1
                if index == len(theirs) or not (theirs[index][0] <= first and last <= theirs[index][1]):
                    return False
        return True

    def __iter__(self) -> Iterator[GtidRange]:
        for source in sorted(self._intervals):
            for first, last in self._intervals[source]:
                yield GtidRange(source, first, last)

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._intervals == other._intervals

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __str__(self) -> str:
        """MySQL's text form; the tagged intervals of a server stand behind its untagged ones."""
        by_sid: dict[str, str] = {}
        for source in sorted(self._intervals):
            sid, _, tag = source.partition(":")
            spans = ":".join(f"{a}-{b}" if b > a else f"{a}" for a, b in self._intervals[source])
            by_sid[sid] = by_sid.get(sid, sid) + (f":{tag}" if tag else "") + f":{spans}"
        return ",".join(by_sid.values())

    def __repr__(self) -> str:
        return f"GtidSet({str(self)!r})"
