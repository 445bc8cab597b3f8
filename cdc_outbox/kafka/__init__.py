"""Kafka: from an event to its record, and two client libraries behind one small interface."""
