"""Events that an application commits while things go wrong, judged in the end."""

from __future__ import annotations

from tests.harness.judge import Judge
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer


class Load:
    """Begins at once; returns when the first events are settled."""

    def __init__(self, world: World, rate: float = 50) -> None:
        """rate: transactions a second of each of two threads."""
        self._world = world
        self.judge = Judge(world)
        self.writer = Writer(world, threads=2, rate=rate).start()
        self.flow(100)

    @property
    def settled(self) -> int:
        (count,) = self._world.execute("SELECT COUNT(*) FROM outbox_event WHERE status = 2")[0]
        return int(count)

    def flow(self, more: int) -> None:
        """Until so many more events are sent."""
        target = self.settled + more
        wait_until(lambda: self.settled > target, f"{more} more events sent")

    def pile_up(self, more: int) -> None:
        """Until so many more events are committed."""
        target = self.writer.count + more
        wait_until(lambda: self.writer.count > target, f"{more} more events committed")

    def check(self) -> None:
        """End it. Nothing lost, order kept, no retry spent."""
        commits = self.writer.stop()
        self._world.wait_settled()
        self.judge.check_complete(commits)
        self.judge.check_order(commits)
        assert no_retry_spent(self._world)


def no_retry_spent(world: World) -> bool:
    return bool(world.execute("SELECT COUNT(*) FROM outbox_event WHERE retry_count > 0 OR status = 3")[0][0] == 0)
