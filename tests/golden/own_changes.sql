-- Rows that the transaction which inserts them changes; statements that insert and update at once.
BEGIN;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'order', 'o-1', 'Created', '{"v": 1}');
UPDATE outbox_event SET payload = '{"v": 2}' WHERE event_id = 'a';
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('b', 'order', 'o-1', 'Created', '{"v": 1}');
COMMIT;
BEGIN;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('c', 'order', 'o-1', 'Created', '{"v": 1}');
DELETE FROM outbox_event WHERE event_id = 'c';
COMMIT;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('d', 'order', 'o-1', 'Created', '1'), ('a', 'order', 'o-1', 'Created', '2')
  ON DUPLICATE KEY UPDATE event_type = 'Again';
REPLACE INTO outbox_event (id, event_id, aggregate_type, aggregate_id, event_type, payload) VALUES (1, 'e', 'order', 'o-1', 'Created', '[3]');
UPDATE outbox_event SET status = 2;
SET SESSION binlog_row_value_options = 'PARTIAL_JSON';
BEGIN;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('f', 'order', 'o-1', 'Created', '{"k": "to be replaced in place"}');
UPDATE outbox_event SET payload = JSON_SET(payload, '$.k', 'short') WHERE event_id = 'f';
COMMIT;
