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

NO_TOPIC = frozenset({UNKNOWN_TOPIC, FORBIDDEN_TOPIC})
"""The topic's fault, not the record's: what waits for it may be sent once it is there."""

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

_OF_AN_OUTAGE = frozenset(
    {
        "BROKER_NOT_AVAILABLE",
        "CLUSTER_AUTHORIZATION_FAILED",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "DUPLICATE_SEQUENCE_NUMBER",
        "FENCED_LEADER_EPOCH",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "KAFKA_STORAGE_ERROR",
        LEADER_NOT_AVAILABLE,
        "NETWORK_EXCEPTION",
        "NOT_CONTROLLER",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_LEADER_FOR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "OFFSET_NOT_AVAILABLE",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "PRODUCER_FENCED",
        "REBALANCE_IN_PROGRESS",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "STALE_CONTROLLER_EPOCH",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_PRODUCER_ID",
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
    # What a broker answers is spelled in capitals; the clients' own errors (_TRANSPORT, KafkaTimeoutError) are not.
    broker_said = name.isupper() and not name.startswith("_")
    explained = not broker_said or name in _OF_AN_OUTAGE or name in _OF_THE_CREDENTIALS
    return Hold(f"Kafka: {name}: {text}", reason="kafka", suspect="" if explained else name)


def is_refused_login(name: str, text: str) -> bool:
    """The broker does not accept who we say we are, or we do not accept who it says it is: at start a setting to be put
    right, later a hold."""
    return official(name) in _OF_THE_CREDENTIALS or is_untrusted(text)


def is_untrusted(text: str) -> bool:
    """A certificate does not convince. Both libraries pass on OpenSSL's words, each in its own spelling."""
    return "certificate verify failed" in text.lower().replace("_", " ")
