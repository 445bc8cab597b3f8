"""One soak from its first commit to the judge's word, and the report of it."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.judge import Judge
from tests.harness.process import RelayProcess
from tests.harness.world import World
from tests.soak.faults import Fault, Faults, schedule
from tests.soak.load import Load

MAX_IN_FLIGHT = 2000
MAX_RECORD = 2048
SAMPLE = 5.0
"""Seconds between two looks at a relay's memory."""

WARM = 60.0
"""Seconds of a relay's lead that are not looked at for growth: a standby is smaller than a leader."""

GROWTH = 1.25
"""Times that the memory of the last third of a relay's lead may be what that of the first was."""


@dataclass(frozen=True)
class Report:
    """What came of it. memory: MiB of the relay that led longest, sample by sample after its first minute.

    led: seconds from the first sample of it to the last; it need not have led all the time.
    """

    seed: int
    seconds: float
    events: int
    dead: int
    duplicates: int
    deaths: int
    faults: Counter[str]
    relays: int
    memory: list[float]
    led: float
    highest: float
    settled_after: float

    def page(self, command: str, title: str = "Soak") -> str:
        faults = "\n".join(f"| {kind.replace('_', ' ')} | {count} |" for kind, count in sorted(self.faults.items()))
        third = max(1, len(self.memory) // 3)
        first, last = (median(part) if part else 0 for part in (self.memory[:third], self.memory[-third:]))
        return f"""# {title}

The last run of the soak: a leader and a standby on a real MySQL and Kafka, a writer that never stops, and faults that a
seed chooses. It ends with the judge, who reads Kafka and the table. This page is written by

    {command}

| | |
|---|---|
| lasted | {self.seconds / 60:.0f} min, seed {self.seed} |
| ran on | {platform.system()} {platform.machine()}, Python {platform.python_version()} |
| events committed | {self.events} |
| of these dead, being too large | {self.dead} |
| lost, out of order | none |
| sent twice | {self.duplicates}, after {self.deaths} faults that excuse it |
| relay processes | {self.relays} |
| the relay that was seen leading longest | over {self.led / 60:.0f} min |
| its memory, from its second minute on | {first:.0f} MiB in the first third, {last:.0f} MiB in the last |
| highest memory of any relay | {self.highest:.0f} MiB |
| all settled after the last fault | within {self.settled_after:.0f} s |

| fault | times |
|---|---|
{faults}
"""


class Soak:
    """servers of its own are restarted and killed; world: on them."""

    def __init__(
        self, world: World, mysql: Server[MySQLEndpoint], kafka: Server[KafkaEndpoint], say: Callable[[str], None]
    ) -> None:
        self._world = world
        self._mysql = mysql
        self._kafka = kafka
        self._say = say
        self._config = world.config(
            kafka={"max_record_bytes": MAX_RECORD, "batch_bytes": MAX_RECORD},
            limits={"max_in_flight": MAX_IN_FLIGHT},
            retry={"waits": ["1s", "2s"], "poll_interval": "500ms", "jitter": 0.1},
        )
        self._memory: dict[int, list[tuple[float, float]]] = {}
        """Of each relay while it leads: when, and MiB."""
        self._highest = 0.0
        self._relays: list[RelayProcess] = []

    def run(
        self, *, seed: int, seconds: float, every: tuple[float, float], rate: float, keep_relays: bool = False
    ) -> Report:
        """Raises AssertionError when a promise was broken or memory grew."""
        plan = schedule(seed, seconds, every, keep_relays=keep_relays)
        faults = Faults(self._world, self._mysql, self._kafka, self._start, seed)
        load = Load(self._world, rate=rate, seed=seed, max_bytes=MAX_RECORD).start()
        begun = time.monotonic()
        for fault in plan:
            self._watch(faults.relays, begun + fault.at, load)
            self._say(f"{time.monotonic() - begun:.0f} s: {fault.kind.replace('_', ' ')} for {fault.lasting:.1f} s")
            faults.carry_out(fault)
        self._watch(faults.relays, begun + seconds, load)
        lasted = time.monotonic() - begun
        commits = load.stop()
        self._say(f"{load.count} events committed; waiting until all are settled")
        ended = time.monotonic()
        self._world.close_session()
        self._world.wait_settled(timeout=600)
        settled_after = time.monotonic() - ended
        for relay in faults.relays:
            assert relay.running and relay.stop() == 0, "a relay did not live until the end"
        return self._judge(
            seed=seed, lasted=lasted, plan=plan, faults=faults, commits=commits, settled_after=settled_after
        )

    def _start(self) -> RelayProcess:
        self._relays.append(RelayProcess(self._config))
        return self._relays[-1]

    def close(self) -> None:
        """End every relay."""
        for relay in self._relays:
            relay.kill()

    def _watch(self, relays: list[RelayProcess], until: float, load: Load) -> None:
        """Look at memory until it is time for the next fault."""
        while (left := until - time.monotonic()) > 0:
            for relay in relays:
                size = _resident(relay.pid)
                if size is not None:
                    self._highest = max(self._highest, size)
                    if _leads(relay):
                        self._memory.setdefault(relay.pid, []).append((time.monotonic(), size))
            if load.failure is not None:
                raise load.failure
            time.sleep(min(SAMPLE, left))

    def _judge(
        self,
        *,
        seed: int,
        lasted: float,
        plan: list[Fault],
        faults: Faults,
        commits: dict[str, list[str]],
        settled_after: float,
    ) -> Report:
        judge = Judge(self._world)
        judge.check_complete(commits)
        judge.check_order(commits)
        times = Counter(record.event_id for record in judge.records())
        duplicates = sum(count - 1 for count in times.values())
        assert duplicates <= faults.deaths * MAX_IN_FLIGHT, f"P7: {duplicates} duplicates"
        (dead,) = self._world.execute("SELECT COUNT(*) FROM outbox_event WHERE status = 3 AND next_retry_at IS NULL")
        longest = max(self._memory.values(), key=len, default=[])
        memory = [size for at, size in longest if at - longest[0][0] > WARM]
        if len(memory) > 24:
            third = len(memory) // 3
            first, last = median(memory[:third]), median(memory[-third:])
            assert last <= first * GROWTH, f"memory grew from {first:.0f} to {last:.0f} MiB"
        return Report(
            seed=seed,
            seconds=lasted,
            events=sum(len(events) for events in commits.values()),
            dead=dead[0],
            duplicates=duplicates,
            deaths=faults.deaths,
            faults=Counter(fault.kind for fault in plan),
            relays=len(self._relays),
            memory=memory,
            led=longest[-1][0] - longest[0][0] if longest else 0.0,
            highest=self._highest,
            settled_after=settled_after,
        )


def _leads(relay: RelayProcess) -> bool:
    """By the last word of its log on the matter."""
    said = [event for event in relay.events() if event in ("leader", "standby", "leadership_lost")]
    return bool(said) and said[-1] == "leader"


def _resident(pid: int) -> float | None:
    """MiB of memory that a process has; None where it has gone, or where there is no /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return pages * 4096 / (1 << 20)
