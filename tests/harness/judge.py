"""The promises P1, P2 and P7, read from Kafka and the table. Every test that breaks things ends here."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.harness.kafka import Seen, end_offsets, read_topic

if TYPE_CHECKING:
    from tests.harness.world import World


@dataclass(frozen=True)
class Snapshot:
    """What was settled at one moment, and where Kafka ended then."""

    settled: frozenset[str]
    ends: dict[int, int]


class Judge:
    """Reads one topic and one table. Commit order is the order of `commits` that the writer noted."""

    def __init__(self, world: World, topic: str | None = None, table: str = "outbox_event") -> None:
        self._world = world
        self._topic = topic or world.topic
        self._table = table

    def records(self) -> list[Seen]:
        return read_topic(self._world.bootstrap, self._topic)

    def snapshot(self) -> Snapshot:
        """To be taken while no relay runs, or of a relay that was just killed."""
        settled = {event_id for event_id, status in self._world.statuses(self._table).items() if status == 2}
        return Snapshot(frozenset(settled), end_offsets(self._world.bootstrap, self._topic))

    def check_complete(self, commits: dict[str, list[str]]) -> None:
        """P1: every committed event is in Kafka and its row says sent, or is dead."""
        statuses = self._world.statuses(self._table)
        dead = {
            row[0]
            for row in self._world.execute(
                f"SELECT event_id FROM {self._table} WHERE status = 3 AND next_retry_at IS NULL"
            )
        }
        published = {record.event_id for record in self.records()}
        committed = {event_id for events in commits.values() for event_id in events}
        lost = committed - published - dead
        assert not lost, f"P1: {len(lost)} events are neither in Kafka nor dead: {sorted(lost)[:5]}"
        unsettled = {one for one in committed - dead if statuses.get(one) != 2}
        assert not unsettled, f"P1: {len(unsettled)} rows are not settled: {sorted(unsettled)[:5]}"

    def check_order(self, commits: dict[str, list[str]]) -> None:
        """P2: the first records of each aggregate stand in commit order (dead ones left out)."""
        first: dict[str, list[str]] = defaultdict(list)
        seen: set[str] = set()
        for record in self.records():
            if record.event_id not in seen:
                seen.add(record.event_id)
                first[record.headers["aggregate_id"].decode()].append(record.event_id)
        for aggregate, events in commits.items():
            expected = [event_id for event_id in events if event_id in seen]
            assert first[aggregate] == expected, (
                f"P2: aggregate {aggregate} was first published as {_around(first[aggregate], expected)}"
            )

    def check_no_duplicates(self) -> None:
        """P7 without a crash: no event twice."""
        count: dict[str, int] = defaultdict(int)
        for record in self.records():
            count[record.event_id] += 1
        twice = [event_id for event_id, times in count.items() if times > 1]
        assert not twice, f"P7: {len(twice)} events were published more than once: {sorted(twice)[:5]}"

    def check_settled_stay(self, snapshots: list[Snapshot]) -> None:
        """P7 across crashes: what was settled at a snapshot was not handed over after it."""
        records = self.records()
        for snapshot in snapshots:
            again = [
                record.event_id
                for record in records
                if record.offset >= snapshot.ends.get(record.partition, 0) and record.event_id in snapshot.settled
            ]
            assert not again, f"P7: {len(again)} settled events were published again: {sorted(again)[:5]}"

    def check(self, commits: dict[str, list[str]], snapshots: list[Snapshot] | None = None) -> None:
        """P1, P2 and P7; without snapshots there was no crash, and so no duplicate."""
        self.check_complete(commits)
        self.check_order(commits)
        if snapshots:
            self.check_settled_stay(snapshots)
        else:
            self.check_no_duplicates()


def _around(found: list[str], expected: list[str]) -> str:
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return f"… {found[max(0, index - 1) : index + 3]} …, expected … {expected[max(0, index - 1) : index + 3]} …"
    return f"{len(found)} events, expected {len(expected)}"
