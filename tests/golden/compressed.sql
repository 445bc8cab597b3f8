-- A compressed transaction: nothing before it is lost, and the reader stops.
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'order', 'o-1', 'Created', '1');
SET SESSION binlog_transaction_compression = ON;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('b', 'order', 'o-1', 'Created', JSON_ARRAY(REPEAT('x', 3000)));
