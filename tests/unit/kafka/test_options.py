"""Raw options: what may not be set, what may not be shown, what the client libraries do not know."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from cdc_outbox.config import KafkaSettings, SecuritySettings
from cdc_outbox.errors import Refused
from cdc_outbox.kafka import confluent_admin, kafka_python_admin
from cdc_outbox.kafka.options import refused_login, without_secrets
from cdc_outbox.kafka.publisher import make_publisher

NOBODY = "127.0.0.1:1"


def settings(**kafka: object) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=NOBODY, **kafka)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("client", "option", "value"),
    [
        ("confluent", "acks", 1),
        ("confluent", "request.required.acks", 1),
        ("confluent", "enable.idempotence", False),
        ("confluent", "message.timeout.ms", 1000),
        ("confluent", "transactional.id", "x"),
        ("kafka-python", "acks", 1),
        ("kafka-python", "enable_idempotence", False),
        ("kafka-python", "delivery_timeout_ms", 1000),
        ("kafka-python", "retries", 0),
    ],
)
def test_options_that_would_break_a_promise_are_refused_by_name(client: str, option: str, value: object) -> None:
    with pytest.raises(Refused, match=f"kafka.options.{option} cannot be set"):
        make_publisher(settings(client=client, options={option: value}), lambda _: None)


@pytest.mark.parametrize(("client", "option"), [("confluent", "sasl.pasword"), ("kafka-python", "sasl_plain_pasword")])
def test_an_option_that_the_library_does_not_know_is_refused_without_its_value(client: str, option: str) -> None:
    with pytest.raises(Refused) as refused:
        make_publisher(settings(client=client, options={option: "hunter2"}), lambda _: None)
    assert option in refused.value.message
    assert "hunter2" not in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("partitioner", "murmur2", "Python object"),
        ("retry_backoff_ms", "soon", "must be a number"),
        ("allow_auto_create_topics", "no", "must be a boolean"),
    ],
)
def test_values_that_kafka_python_would_trip_over_later(option: str, value: object, why: str) -> None:
    with pytest.raises(Refused, match=why):
        make_publisher(settings(client="kafka-python", options={option: value}), lambda _: None)


def test_connections_that_a_firewall_may_have_forgotten_are_closed() -> None:
    """After less than the 4 minutes that the strictest remember them; an own setting stands."""
    options = confluent_admin.producer_options(settings(client="confluent"), 1000)
    assert 0 < options["connections.max.idle.ms"] < 240_000
    assert 0 < options["socket.timeout.ms"] <= 10_000
    options = kafka_python_admin.producer_options(settings(client="kafka-python"), 1.0)
    assert 0 < options["connections_max_idle_ms"] < 240_000
    assert 0 < options["request_timeout_ms"] <= 10_000
    own = settings(client="kafka-python", options={"request_timeout_ms": 20_000})
    assert kafka_python_admin.producer_options(own, 1.0)["request_timeout_ms"] == 20_000


def test_secrets_are_blotted_out_of_the_libraries_texts() -> None:
    kafka = settings(
        client="confluent",
        security=SecuritySettings(
            protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", username="relay", password=SecretStr("s3cret")
        ),
        options={"ssl.key.password": "k3y", "sasl.oauthbearer.client.secret": "0auth", "client.id": "visible"},
    )
    assert without_secrets("s3cret k3y 0auth visible", kafka) == "*** *** *** visible"
    refused = refused_login(kafka, "no s3cret for you")
    assert "s3cret" not in refused.message
    assert "'relay'" in refused.message
