"""The application's side of the outbox. Imports no Kafka client, no binlog library, no ORM."""
