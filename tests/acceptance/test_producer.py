"""From Outbox.add to Kafka: the application's half and the relay's half together."""

from __future__ import annotations

import json
from typing import Any

from cdc_outbox import NewEvent, Outbox
from tests.harness.judge import Judge
from tests.harness.world import World


def test_what_the_outbox_writes_the_relay_publishes(world: World) -> None:
    """Payload, headers and order arrive; what was rolled back does not."""
    world.execute("ALTER TABLE outbox_event ADD COLUMN trace_id VARCHAR(32) NULL")
    world.start(outbox={"columns": {"headers": {"trace": "trace_id"}}})
    outbox = Outbox(headers={"trace": "trace_id"})
    order: dict[str, Any] = {"aggregate_type": "order", "aggregate_id": 17, "event_type": "OrderPaid"}
    payload = {"order": 17, "cents": 1250, "to": "Zoë 📦", "price": 12.5}

    connection = world.connect(autocommit=False)
    first = outbox.add(connection, **order, payload=payload, headers={"trace": "t-1"})
    connection.commit()
    outbox.add(connection, **order, payload={"never": True})
    connection.rollback()
    later = outbox.add_many(connection, [NewEvent(**order, payload=[number]) for number in range(5)])
    connection.commit()
    connection.close()

    world.wait_sent(first, *later)
    judge = Judge(world)
    judge.check({"17": [first, *later]})
    records = judge.records()
    assert [record.event_id for record in records] == [first, *later]
    assert (records[0].key, records[0].headers["trace"]) == (b"17", b"t-1")
    assert "trace" not in records[1].headers
    assert json.loads(records[0].value or b"") == payload
