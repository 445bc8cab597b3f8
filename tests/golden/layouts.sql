-- Columns that come, go and move; DDL of our table is a barrier.
-- extra: tenant, at, latin
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'order', 'o-1', 'Created', '1');
ALTER TABLE outbox_event ADD COLUMN tenant SMALLINT UNSIGNED NULL FIRST, ADD COLUMN pick ENUM('x', 'y') DEFAULT 'y' AFTER id,
  ADD COLUMN at DATETIME(3) NULL, ADD COLUMN latin VARCHAR(300) CHARACTER SET latin1 NULL, ADD COLUMN price DECIMAL(10, 2) DEFAULT 1.5 AFTER payload;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, tenant, at, latin)
  VALUES ('b', 'order', 'o-1', 'Created', '{"n": 2}', 65535, '2026-11-30 01:02:03.045', 'naïve €'), ('c', 'order', 'o-1', 'Created', '3', NULL, NULL, NULL);
ALTER TABLE outbox_event DROP COLUMN pick, MODIFY COLUMN payload JSON NOT NULL FIRST;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, tenant) VALUES ('d', 'order', 'o-1', 'Created', '[4]', 7);
SET SESSION binlog_row_image = 'MINIMAL';
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('e', 'order', 'o-1', 'Created', '[5]');
TRUNCATE outbox_event;
