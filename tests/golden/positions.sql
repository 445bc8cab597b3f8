-- Tagged GTIDs, files that end, GTIDs listed at the head of the next.
SET SESSION gtid_next = 'AUTOMATIC:orders';
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'order', 'o-1', 'Created', '1');
SET SESSION gtid_next = 'AUTOMATIC';
FLUSH BINARY LOGS;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('b', 'order', 'o-1', 'Created', '1');
FLUSH BINARY LOGS;
FLUSH BINARY LOGS;
