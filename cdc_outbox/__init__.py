"""cdc-outbox: the transactional outbox on MySQL, relayed to Kafka."""

__version__ = "0.1.0"
