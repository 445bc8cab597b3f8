"""A consumer as a program of its own, for tests that kill it: `python -m tests.harness.consumer_process JSON`.

JSON: shop (what `Shop` is made of), mode, lease, group, stop_at: {event id: "before" | "after"} its effect, and either
events: ids to process one after the other, or kafka: {client, bootstrap, topic, progress}.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from tests.harness.kafka import consumer_of
from tests.harness.shop import GROUP, Shop


def say(text: str) -> None:
    print(text, flush=True)


def main(job: dict[str, Any]) -> None:
    shop = Shop(**job["shop"])
    stop_at: dict[str, str] = job.get("stop_at", {})

    def stop_here(event_id: str, point: str) -> None:
        if stop_at.get(event_id) == point:
            say(f"{point} {event_id}")
            threading.Event().wait(120)
            sys.exit(f"nobody killed this consumer at {point} {event_id}")

    def in_transaction(connection: Any, event: Any) -> None:
        event_id = id_of(event)
        stop_here(event_id, "before")
        shop.write(connection, event_id)
        stop_here(event_id, "after")

    def outside(event: Any) -> None:
        event_id = id_of(event)
        stop_here(event_id, "before")
        shop.act(event_id)
        stop_here(event_id, "after")

    consumer = shop.consumer(
        mode=job["mode"],
        lease=job.get("lease", 30.0),
        group=job.get("group", GROUP),
        keep_progress=job.get("kafka", {}).get("progress", False),
    )
    handler = in_transaction if job["mode"] == "transactional" else outside
    if "kafka" in job:
        kafka = job["kafka"]
        client = consumer_of(kafka["client"], kafka["bootstrap"], job.get("group", GROUP))
        say("started")
        consumer.run(client, [kafka["topic"]], handler)
    for event_id in job.get("events", []):
        consumer.process(event_id, handler, event_id)
        say(f"done {event_id}")


def id_of(event: Any) -> str:
    return event if isinstance(event, str) else event.headers["event_id"].decode()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
