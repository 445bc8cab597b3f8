"""`doctor`: every check of server, tables, clock and broker, in one deadline whatever answers and whatever does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cdc_outbox.binlog.accelerator import decoder
from cdc_outbox.config_values import TOPIC_FIELDS
from cdc_outbox.errors import Hold, Refused
from cdc_outbox.kafka.formats import missing_library
from cdc_outbox.kafka.publisher import BrokerFacts, describe_broker
from cdc_outbox.mysql.connection_checks import unreachable
from cdc_outbox.mysql.findings import Finding
from cdc_outbox.mysql.preflight import examine_mysql
from cdc_outbox.mysql.source_preflight import away_source, examine_source

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings, Settings

DEADLINE = 4.0
"""Seconds for everything, so that the command ends within 5: Python's own start comes on top."""


def examine(settings: Settings, *, deadline: float = DEADLINE) -> list[Finding]:
    """All findings: MySQL's, the broker's, our own. What has not answered within `deadline` seconds is one too."""
    ends = time.monotonic() + deadline
    mysql = _Look(lambda: examine_mysql(settings))
    source = _Look(lambda: examine_source(settings))
    broker = _Look(lambda: _examine_broker(settings.kafka))
    late = f"nothing within {deadline:g} s"
    return [
        *(mysql.findings(ends) or [unreachable(settings.mysql, late)]),
        *(away_source(settings, late) if (found := source.findings(ends)) is None else found),
        _format(settings.kafka),
        *(broker.findings(ends) or [_broker_unreachable(settings.kafka, late)]),
        _decoder(),
    ]


def _decoder() -> Finding:
    parts = decoder()
    if parts.kind == "compiled":
        return Finding("decoder", "ok", "the binlog is read by the compiled module")
    what = f"the binlog is read in pure Python: {parts.why}"
    return Finding("decoder", "ok", what, "the same results for more CPU")


class _Look:
    """One group of checks on a thread of its own.

    A daemon: a name look-up or a client library that hangs must not keep the command from ending.
    """

    def __init__(self, look: Callable[[], list[Finding]]) -> None:
        self._look = look
        self._found: list[Finding] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="doctor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._look()
        except BaseException as error:
            self._error = error

    def findings(self, ends: float) -> list[Finding] | None:
        """What was found, None when it takes longer than until `ends` (monotonic seconds)."""
        self._thread.join(max(0.0, ends - time.monotonic()))
        if self._error is not None:
            raise self._error
        return self._found


def _format(settings: KafkaSettings) -> Finding:
    missing = missing_library(settings)
    if missing is None:
        return Finding("kafka-format", "ok", f"kafka.format = {settings.format}")
    return Finding("kafka-format", "error", missing.message, "no record could be written", missing.hint)


def _examine_broker(settings: KafkaSettings) -> list[Finding]:
    try:
        facts = describe_broker(settings)
    except Refused as error:
        why = "the client refused to start"
        return [Finding("kafka-settings", "error", error.message, why, error.hint)]
    except Hold as error:
        return [_broker_unreachable(settings, error.message)]
    return list(broker_findings(settings, facts))


def _broker_unreachable(settings: KafkaSettings, text: str) -> Finding:
    return Finding(
        "kafka-reachable",
        "error",
        f"Kafka at {settings.bootstrap_servers} does not answer: {text}",
        "`start` waits for it; no event and no retry is lost meanwhile",
        "kafka: {bootstrap_servers, security} — or start the broker",
        heals=True,
    )


def broker_findings(settings: KafkaSettings, facts: BrokerFacts) -> Iterator[Finding]:
    """What a cluster's answer means. Topics named by a template show only with their first event."""
    count = len(facts.brokers)
    brokers = "1 broker" if count == 1 else f"{count} brokers"
    cluster = facts.cluster_id or "without an id"
    yield Finding("kafka-reachable", "ok", f"Kafka cluster {cluster}, {brokers}, by {facts.client}")
    create = settings.create_topics
    if create is not None and create.replication_factor > count:
        yield Finding(
            "kafka-create-topics",
            "error",
            f"kafka.create_topics.replication_factor = {create.replication_factor}, and the cluster has {brokers}",
            "no topic can be created like that",
            f"kafka: {{create_topics: {{partitions: {create.partitions}, replication_factor: {count}}}}}",
        )
    else:
        yield _who_creates(settings, facts)
    yield from _missing_topics(settings, facts)


def _creates(settings: KafkaSettings, facts: BrokerFacts) -> bool:
    return settings.create_topics is not None or facts.creates_topics is True


def _who_creates(settings: KafkaSettings, facts: BrokerFacts) -> Finding:
    check, create = "kafka-create-topics", settings.create_topics
    if create is not None:
        found = f"{create.partitions} partitions, {create.replication_factor} replicas"
        return Finding(check, "ok", f"the relay creates missing topics: {found}")
    if facts.creates_topics:
        return Finding(
            check,
            "ok",
            "the broker creates missing topics, as its num.partitions and default.replication.factor say",
        )
    state = "off" if facts.creates_topics is False else "not visible to us"
    if _template_fields(settings):
        return Finding(
            check,
            "warning",
            f"kafka.create_topics is null, and the broker's auto.create.topics.enable is {state}",
            f"events for a topic of {settings.topic} that does not exist wait until somebody creates it",
            f"kafka: {{create_topics: {{partitions: 6, replication_factor: {_replicas(facts)}}}}}",
        )
    return Finding(check, "ok", f"the broker's auto.create.topics.enable is {state}")


def _missing_topics(settings: KafkaSettings, facts: BrokerFacts) -> Iterator[Finding]:
    fixed = set(settings.topic_map.values())
    if not _template_fields(settings):
        fixed.add(settings.topic)
    missing = sorted(fixed - facts.topics)
    if missing and not _creates(settings, facts):
        yield Finding(
            "kafka-topics",
            "error",
            f"there is no topic {', '.join(missing)}",
            "its events wait until somebody creates it",
            _create_commands(settings, facts, missing),
        )
    else:
        yield Finding("kafka-topics", "ok", f"{len(fixed)} topics named by the settings: there, or created when needed")
    dead_letters = settings.dead_letter_topic
    if dead_letters not in facts.topics and not _creates(settings, facts):
        yield Finding(
            "kafka-dead-letter-topic",
            "warning",
            f"kafka.dead_letter_topic: there is no topic {dead_letters}",
            "an event whose retries are used up is marked dead, and no dead letter tells of it",
            _create_commands(settings, facts, [dead_letters]),
        )
    else:
        yield Finding("kafka-dead-letter-topic", "ok", f"dead letters go to {dead_letters}")


def _template_fields(settings: KafkaSettings) -> bool:
    return any(f"{{{name}}}" in settings.topic for name in TOPIC_FIELDS)


def _replicas(facts: BrokerFacts) -> int:
    return min(3, len(facts.brokers))


def _create_commands(settings: KafkaSettings, facts: BrokerFacts, topics: list[str]) -> str:
    return "\n".join(
        f"kafka-topics.sh --bootstrap-server {settings.bootstrap_servers} --create --topic {topic}"
        f" --partitions 6 --replication-factor {_replicas(facts)}"
        for topic in topics
    )
