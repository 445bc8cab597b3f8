"""What a cluster's answer means, and that the report never waits for what does not answer."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from cdc_outbox.binlog.accelerator import MODULE, PURE
from cdc_outbox.config import Settings
from cdc_outbox.errors import Hold, Refused
from cdc_outbox.kafka.publisher import BrokerFacts
from cdc_outbox.mysql.findings import Finding
from cdc_outbox.ops import doctor

FACTS = BrokerFacts(
    client="a client 1.0",
    cluster_id="abc",
    brokers=["kafka:9092"],
    controller="1",
    topics=frozenset({"orders", "outbox.dead-letter"}),
    creates_topics=False,
)


def settings(**kafka: object) -> Settings:
    return Settings.model_validate(
        {
            "name": "orders",
            "mysql": {"user": "relay", "password": "x", "database": "shop"},
            "kafka": {"bootstrap_servers": "kafka:9092", "topic": "orders", **kafka},
        }
    )


def wrong(facts: BrokerFacts, **kafka: object) -> dict[str, str]:
    findings = doctor.broker_findings(settings(**kafka).kafka, facts)
    return {one.check: one.level for one in findings if one.level != "ok"}


def test_topics_that_exist_need_nobody_to_create_them() -> None:
    assert wrong(FACTS) == {}


@pytest.mark.parametrize("creates", [False, None])
def test_a_template_needs_somebody_who_creates_topics(creates: bool | None) -> None:
    facts = replace(FACTS, creates_topics=creates)
    assert wrong(facts, topic="outbox.event.{aggregate_type}") == {"kafka-create-topics": "warning"}


def test_the_broker_or_the_relay_may_create_them() -> None:
    template: dict[str, Any] = {"topic": "outbox.event.{aggregate_type}", "topic_map": {"a/b": "ab"}}
    bare = replace(FACTS, topics=frozenset())
    assert wrong(replace(bare, creates_topics=True), **template) == {}
    assert wrong(bare, **template, create_topics={"partitions": 3, "replication_factor": 1}) == {}


def test_more_replicas_than_brokers_cannot_be() -> None:
    assert wrong(FACTS, create_topics={"partitions": 3, "replication_factor": 2}) == {"kafka-create-topics": "error"}


def test_a_missing_topic_is_told_with_the_command_that_makes_it() -> None:
    bare = replace(FACTS, topics=frozenset())
    findings = {one.check: one for one in doctor.broker_findings(settings(topic_map={"a": "b"}).kafka, bare)}
    assert findings["kafka-topics"].level == "error"
    fix = findings["kafka-topics"].fix or ""
    assert "--create --topic b " in fix and "--create --topic orders " in fix
    assert findings["kafka-dead-letter-topic"].level == "warning"


def test_the_decoder_is_told(monkeypatch: pytest.MonkeyPatch, compiled: ModuleType) -> None:
    monkeypatch.setattr(doctor, "examine_mysql", lambda _: [])
    monkeypatch.setattr(doctor, "describe_broker", lambda _: FACTS)
    monkeypatch.setitem(sys.modules, MODULE, compiled)
    monkeypatch.setenv(PURE, "0")
    assert "compiled" in doctor.examine(settings())[-1].found
    monkeypatch.setenv(PURE, "1")
    assert f"pure Python: {PURE} is set" in doctor.examine(settings())[-1].found


def test_what_hangs_is_a_finding_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()

    def hang(_: object) -> list[Finding]:
        never.wait(30)
        return []

    monkeypatch.setattr(doctor, "examine_mysql", hang)
    monkeypatch.setattr(doctor, "describe_broker", hang)
    try:
        findings = doctor.examine(settings(), deadline=0.05)
    finally:
        never.set()
    assert [(one.check, one.level, one.heals) for one in findings if one.level != "ok"] == [
        ("mysql-reachable", "error", True),
        ("kafka-reachable", "error", True),
    ]


@pytest.mark.parametrize(
    ("raised", "check", "heals"),
    [
        (Hold("no broker answers", reason="kafka"), "kafka-reachable", True),
        (Refused("kafka.options: unknown option", hint="remove it"), "kafka-settings", False),
    ],
)
def test_a_broker_that_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, check: str, heals: bool
) -> None:
    def refuse(_: object) -> BrokerFacts:
        raise raised

    monkeypatch.setattr(doctor, "examine_mysql", lambda _: [Finding("log-bin", "ok", "log_bin = ON")])
    monkeypatch.setattr(doctor, "describe_broker", refuse)
    (finding,) = [one for one in doctor.examine(settings()) if one.level == "error"]
    assert (finding.check, finding.level, finding.heals) == (check, "error", heals)


def test_a_bug_in_a_check_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> list[Finding]:
        raise LookupError("a bug")

    monkeypatch.setattr(doctor, "examine_mysql", fail)
    monkeypatch.setattr(doctor, "describe_broker", lambda _: FACTS)
    with pytest.raises(LookupError):
        doctor.examine(settings())
