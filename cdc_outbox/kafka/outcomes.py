"""What a Kafka error means to the relay: the one classifier, by Kafka error name, that both clients use."""

from __future__ import annotations

from cdc_outbox.errors import Hold, RecordRefused

MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
INVALID_TOPIC = "INVALID_TOPIC_EXCEPTION"
INVALID_RECORD = "INVALID_RECORD"
INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"
FORBIDDEN_TOPIC = "TOPIC_AUTHORIZATION_FAILED"
LEADER_NOT_AVAILABLE = "LEADER_NOT_AVAILABLE"
OTHERS_INVALID = "_INVALID_DIFFERENT_RECORD"
"""librdkafka's name: another record of the batch is invalid."""

_OFFICIAL = {
    # librdkafka's spellings, then kafka-python's; https://kafka.apache.org/protocol#protocol_error_codes
    "MSG_SIZE_TOO_LARGE": MESSAGE_TOO_LARGE,
    "TOPIC_EXCEPTION": INVALID_TOPIC,
    "UNKNOWN_TOPIC_OR_PART": UNKNOWN_TOPIC,
    "_UNKNOWN_TOPIC": UNKNOWN_TOPIC,
    "_AUTHENTICATION": "SASL_AUTHENTICATION_FAILED",
    # Innocent, but its batch was refused: no outage, and as a hold it would come back in the same batch for ever.
    OTHERS_INVALID: INVALID_RECORD,
    "MESSAGE_SIZE_TOO_LARGE": MESSAGE_TOO_LARGE,
    "INVALID_TOPIC": INVALID_TOPIC,
}

_OF_THE_RECORD = frozenset(
    {
        MESSAGE_TOO_LARGE,
        "RECORD_LIST_TOO_LARGE",
        INVALID_RECORD,
        INVALID_TIMESTAMP,
        INVALID_TOPIC,
        UNKNOWN_TOPIC,
        FORBIDDEN_TOPIC,
    }
)

_OF_THE_CREDENTIALS = frozenset({"SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"})


def official(name: str) -> str:
    """Kafka's own name of an error that a client library spells differently; any other name as it is."""
    return _OFFICIAL.get(name, name)


def outcome(name: str, text: str) -> RecordRefused | Hold:
    """The record's own fault (a retry is spent), or anything else: a hold, which costs no retry.

    name: as the library spells it. text: what the library says; it must hold no payload and no secret.
    """
    name = official(name)
    if name in _OF_THE_RECORD:
        return RecordRefused(name, f"{name}: {text}")
    return Hold(f"Kafka: {name}: {text}", reason="kafka")


def is_refused_login(name: str) -> bool:
    """The broker does not accept who we say we are: at start a setting to be put right, later a hold."""
    return official(name) in _OF_THE_CREDENTIALS
