"""What becomes of an event that its topic or the broker does not take: a retry, a wait for the topic, a dead letter.

Used by the relay thread only.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING

from cdc_outbox.errors import RecordRefused
from cdc_outbox.kafka.outcomes import MESSAGE_TOO_LARGE, NO_TOPIC
from cdc_outbox.ops.log import log_event
from cdc_outbox.testing.kill_points import kill_point

if TYPE_CHECKING:
    from cdc_outbox.kafka.publisher import Publisher, Record
    from cdc_outbox.kafka.routing import Router
    from cdc_outbox.mysql.leadership import Lease
    from cdc_outbox.ops.log import Alerts
    from cdc_outbox.ops.metrics import Metrics
    from cdc_outbox.relay.in_flight import Envelope, InFlight
    from cdc_outbox.relay.retry import RetryPolicy
    from cdc_outbox.relay.topic_holds import TopicHolds

logger = logging.getLogger(__name__)


class Refusals:
    """Decides by the retries that an event has left, and sends the dead letters."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        router: Router,
        ledger: InFlight,
        lease: Lease,
        retries: RetryPolicy,
        metrics: Metrics,
        alerts: Alerts,
        topic_holds: TopicHolds,
        max_record_bytes: int,
    ) -> None:
        self._publisher = publisher
        self._router = router
        self._ledger = ledger
        self._lease = lease
        self._retries = retries
        self._metrics = metrics
        self._alerts = alerts
        self._topic_holds = topic_holds
        metrics.hold("topic", False)  # what an earlier incarnation held is found anew
        self._max_record_bytes = max_record_bytes

    def turned_away(self, envelope: Envelope, record: Record, error: RecordRefused) -> None:
        """A check before sending refused it."""
        if error.name in NO_TOPIC and self._router.by_type:
            self.hold_for_topic(envelope, record, error)
        else:
            self.refuse(envelope, error)

    def hold_for_topic(self, envelope: Envelope, record: Record, error: RecordRefused) -> None:
        """No retry is spent while the topic is missing; but nothing waits for it longer than all retries would take."""
        event = envelope.event
        if envelope.overdue:
            self.bury(envelope, error)
            return
        self._topic_holds.add(event.aggregate_type, record, time.monotonic())
        self._metrics.hold("topic", True)
        self._ledger.hold_back(envelope)
        self._alerts.alert(
            "topic_missing",
            f"{error}; events of type {event.aggregate_type!r} wait for it and spend no retry",
            topic=record.topic,
        )

    def look_for_topics(self) -> None:
        for aggregate_type, record in self._topic_holds.to_look_at(time.monotonic()):
            refusal = self._publisher.refusal(record)
            if refusal is None or refusal.name not in NO_TOPIC:
                self._topic_holds.release(aggregate_type)
                self._metrics.hold("topic", bool(self._topic_holds.types))
                line = f"Topic {record.topic} is there: what waited for it goes now"
                log_event(logger, logging.INFO, "topic_found", line, topic=record.topic)

    def refuse(self, envelope: Envelope, error: RecordRefused) -> None:
        event = envelope.event
        wait = self._retries.wait(event.retry_count, event.max_retries, random.random)
        if wait is None:
            self.bury(envelope, error)
        else:
            self._ledger.refuse(envelope, error, wait)
            kill_point("refused")
            self._alerts.alert(
                "event_failed",
                f"event {event.event_id} of {event.table} was refused ({error.name}); next try in {wait} s",
                topic=event.aggregate_type,
            )

    def bury(self, envelope: Envelope, error: RecordRefused) -> None:
        """Retries are used up: the dead letter first, the row after its acknowledgement."""
        event = envelope.event
        self._alerts.alert(
            "event_dead",
            f"event {event.event_id} of {event.table} (id {event.id}) is dead after {event.attempts} attempts: {error}",
            topic=event.aggregate_type,
        )
        envelope.alone = False  # the letter, too, may be refused for the sake of others before it goes alone
        self.send_letter(envelope, error)

    def send_letter(self, envelope: Envelope, error: RecordRefused) -> None:
        event = envelope.event
        self._ledger.refuse(envelope, error, None)
        letter, refusal = self._dead_letter(envelope, error, self._max_record_bytes)
        if refusal is not None and refusal.name == MESSAGE_TOO_LARGE:
            letter, refusal = self._dead_letter(envelope, error, 0)
        if refusal is not None:
            self._alerts.alert(
                "dead_letter_refused",
                f"no dead letter can be written for event {event.event_id} ({refusal.name}); the row keeps the event",
            )
            self._ledger.bury(envelope)
            return
        self._lease.check()
        self._publisher.send([letter])
        kill_point("letter-sent")

    def _dead_letter(
        self, envelope: Envelope, error: RecordRefused, max_bytes: int
    ) -> tuple[Record, RecordRefused | None]:
        """The letter, without its value above max_bytes, and why it would be refused."""
        event = envelope.event
        try:
            topic = self._router.topic(event)
        except RecordRefused:
            topic = ""  # no topic could be made for it
        letter = self._router.dead_letter(event, error, event.attempts, topic, max_bytes)
        letter.token = envelope
        return letter, self._publisher.refusal(letter)
