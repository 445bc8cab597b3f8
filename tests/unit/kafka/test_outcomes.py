"""The classifier over every error that the two client libraries know."""

from __future__ import annotations

import confluent_kafka
import kafka.errors
import pytest

from cdc_outbox.errors import Hold, RecordRefused
from cdc_outbox.kafka.outcomes import is_refused_login, official, outcome

OF_THE_RECORD = {
    "MESSAGE_TOO_LARGE": {"MSG_SIZE_TOO_LARGE", "MESSAGE_SIZE_TOO_LARGE"},
    "RECORD_LIST_TOO_LARGE": set(),
    "INVALID_RECORD": {"_INVALID_DIFFERENT_RECORD"},
    "INVALID_TIMESTAMP": set(),
    "INVALID_TOPIC_EXCEPTION": {"TOPIC_EXCEPTION", "INVALID_TOPIC"},
    "UNKNOWN_TOPIC_OR_PARTITION": {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"},
    "TOPIC_AUTHORIZATION_FAILED": set(),
}
SPELLINGS = {spelling: name for name, others in OF_THE_RECORD.items() for spelling in {name, *others}}


def librdkafka_names() -> list[str]:
    codes = (getattr(confluent_kafka.KafkaError, name) for name in dir(confluent_kafka.KafkaError) if name.isupper())
    return sorted({confluent_kafka.KafkaError(code).name() for code in codes if code})


def kafka_python_names() -> list[str]:
    errors = [one for one in vars(kafka.errors).values() if isinstance(one, type) and issubclass(one, Exception)]
    return sorted({getattr(one, "message", None) or one.__name__ for one in errors} - {"NO_ERROR"})


def test_both_libraries_know_their_errors() -> None:
    assert len(librdkafka_names()) > 150
    assert len(kafka_python_names()) > 140


@pytest.mark.parametrize("name", sorted({*librdkafka_names(), *kafka_python_names(), "SOMETHING_NEW"}))
def test_only_the_records_own_faults_cost_a_retry(name: str) -> None:
    meaning = outcome(name, "a text")
    if name in SPELLINGS:
        assert isinstance(meaning, RecordRefused)
        assert meaning.name == SPELLINGS[name] == official(name)
        assert "a text" in meaning.message
    else:
        assert isinstance(meaning, Hold)
        assert meaning.reason == "kafka"
        assert official(name) in meaning.message
        assert "a text" in meaning.message


@pytest.mark.parametrize(
    "name",
    [
        "UNKNOWN_PRODUCER_ID",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "INVALID_PRODUCER_EPOCH",
        "UNKNOWN",
        "CLUSTER_AUTHORIZATION_FAILED",
        "NOT_ENOUGH_REPLICAS",
        "SASL_AUTHENTICATION_FAILED",
        "_AUTHENTICATION",
        "_MSG_TIMED_OUT",
        "_PURGE_QUEUE",
        "_FATAL",
        "KafkaTimeoutError",
    ],
)
def test_what_the_design_names_as_a_hold(name: str) -> None:
    assert isinstance(outcome(name, ""), Hold)


@pytest.mark.parametrize("name", ["SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION", "UNSUPPORTED_SASL_MECHANISM"])
def test_a_refused_login_is_known_in_both_spellings(name: str) -> None:
    assert is_refused_login(name, "no")


def test_a_lost_connection_is_no_refused_login() -> None:
    assert not is_refused_login("_TRANSPORT", "connection refused")


@pytest.mark.parametrize(
    "text",
    [
        "ssl://kafka:9093/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed",
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:992)",
    ],
)
def test_a_certificate_that_does_not_convince_is_to_be_put_right(text: str) -> None:
    assert is_refused_login("_SSL", text)


@pytest.mark.parametrize("name", ["POLICY_VIOLATION", "UNKNOWN", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "SOMETHING_NEW"])
def test_what_no_outage_explains_makes_the_record_suspect(name: str) -> None:
    meaning = outcome(name, "a text")
    assert isinstance(meaning, Hold) and meaning.suspect == name


@pytest.mark.parametrize(
    "name", ["NOT_ENOUGH_REPLICAS", "_TRANSPORT", "_PURGE_INFLIGHT", "KafkaTimeoutError", "_AUTHENTICATION"]
)
def test_an_outage_makes_no_record_suspect(name: str) -> None:
    meaning = outcome(name, "a text")
    assert isinstance(meaning, Hold) and not meaning.suspect
