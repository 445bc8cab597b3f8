"""Who is measured: this relay in its variants, and the polling relay beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.contender import Contender
from bench.figures import DEFAULT_SIDE, POLLING
from bench.site import Site


@dataclass(frozen=True)
class Side:
    """title: as in the tables; settings: what it is given beyond connections, name and topic: nothing else is tuned."""

    name: str
    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def contender(self, site: Site) -> Contender:
        return site.polling_relay() if self.name == POLLING else site.relay()


SIDES = {
    side.name: side
    for side in (
        Side(DEFAULT_SIDE, "cdc-outbox, confluent-kafka"),  # which it takes by itself where it is installed
        Side("kafka-python", "cdc-outbox, kafka-python", {"kafka": {"client": "kafka-python"}}),
        Side("row", "cdc-outbox, confluent-kafka, `claim: row`", {"outbox": {"claim": "row"}}),
        Side(POLLING, "polling relay, confluent-kafka"),
    )
}
