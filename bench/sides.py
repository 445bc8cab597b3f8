"""Who is measured: this relay in its variants, and what else people relay an outbox with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.backlog import INSERT, values
from bench.contender import READY_DEADLINE, Contender
from bench.debezium import debezium
from bench.failure import BenchFailed
from bench.figures import DEBEZIUM, DEBEZIUM_LATENCY, DEBEZIUM_THROUGHPUT, DEFAULT_SIDE, HANDWRITTEN, POLLING, PURE_SIDE
from bench.servers import Servers
from bench.site import Site, site
from cdc_outbox.binlog.accelerator import PURE

PROBE = 999_999_999
"""The number of the event that shows that a side works: before it, virtual machines and connections are cold."""
_ARRIVAL = 0.1


@dataclass(frozen=True)
class Side:
    """title: as in the tables; settings, environ: what a relay is given beyond connections, name and topic.

    tuning: of Debezium, see bench/settings.
    """

    name: str
    title: str
    kind: Literal["relay", "polling", "handwritten", "debezium"] = "relay"
    settings: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    tuning: str = ""

    @property
    def writes_back(self) -> bool:
        """Whether a row says sent when its event is."""
        return self.kind != "debezium"

    @contextlib.contextmanager
    def site(self, servers: Servers, label: str) -> Iterator[Site]:
        """A database and a topic of its own for the block. Raises BenchFailed, pymysql.MySQLError, KafkaException."""
        with site(servers, f"{label}-{self.name}", self.settings) as place:
            yield place

    def contender(self, place: Site) -> Contender:
        """Its process, not started."""
        match self.kind:
            case "polling":
                return place.polling_relay()
            case "handwritten":
                return place.handwritten_relay()
            case "debezium":
                return debezium(place, self.tuning)
        return place.relay(self.environ)

    def take_position(self, place: Site) -> None:
        """Run it once, so that what is written from now on is what it reads from the binlog. Raises BenchFailed."""
        if self.kind == "polling":
            return
        contender = self.contender(place)
        try:
            contender.start()
            if self.kind == "relay":
                contender.wait_until(place.checkpoint, "a checkpoint", seconds=READY_DEADLINE, pause=_ARRIVAL)
            elif self.kind == "debezium":
                self.relay_one(place, contender)  # without it, it has no offset to store
        finally:
            contender.stop()

    def relay_one(self, place: Site, contender: Contender) -> None:
        """Insert an event and wait until it is sent. Raises BenchFailed."""
        with place.servers.connect(place.database) as session, session.cursor() as cursor:
            cursor.execute(INSERT + values(PROBE, session.escape))
        contender.wait_until(
            lambda: self.left(place) <= 0, "the first event sent", seconds=READY_DEADLINE, pause=_ARRIVAL
        )

    def left(self, place: Site) -> int:
        """Rows whose events are not sent, as far as can be told from outside."""
        if self.writes_back:
            return int(place.rows("SELECT COUNT(*) FROM outbox_event WHERE status <> 2")[0][0])
        return int(place.rows("SELECT COUNT(*) FROM outbox_event")[0][0]) - place.records()

    def check(self, contender: Contender) -> None:
        """Raises BenchFailed when it did not work in the way that its title says."""
        if self.kind != "relay":
            return
        if self.name == PURE_SIDE and "decoder=pure" not in contender.log:
            raise BenchFailed(f"{self.name} did not run without the accelerator")
        if "sweep_done" in contender.log:
            raise BenchFailed(f"{self.name} has swept the backlog by SQL instead of reading it from the binlog")


_KAFKA_PYTHON = {"kafka": {"client": "kafka-python"}}
_ROW = {"outbox": {"claim": "row"}}

SIDES = {
    side.name: side
    for side in (
        Side(DEFAULT_SIDE, "cdc-outbox, confluent-kafka"),  # which it takes by itself where it is installed
        Side(DEBEZIUM_THROUGHPUT, "Debezium, tuned for throughput", "debezium", tuning="throughput"),
        Side(PURE_SIDE, "cdc-outbox, without accelerator", environ={PURE: "1"}),
        Side("kafka-python", "cdc-outbox, kafka-python", settings=_KAFKA_PYTHON),
        Side("row", "cdc-outbox, `claim: row`", settings=_ROW),
        Side("row-kafka-python", "cdc-outbox, `claim: row`, kafka-python", settings={**_ROW, **_KAFKA_PYTHON}),
        Side(DEBEZIUM, "Debezium, by default", "debezium"),
        Side(DEBEZIUM_LATENCY, "Debezium, tuned for latency", "debezium", tuning="latency"),
        Side(POLLING, "polling relay, confluent-kafka", "polling"),
        Side(HANDWRITTEN, "mysql-replication + kafka-python", "handwritten"),
    )
}
