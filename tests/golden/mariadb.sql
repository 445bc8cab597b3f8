-- extra: created_at
-- MariaDB: rows of version 1, JSON as text, GTIDs of its own, XA, a savepoint, DDL, a statement session.
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('a', 'order', 'o-1', 'Created', '{"b":  1.0, "a": "é😀"}', '2026-11-30 12:34:56');
BEGIN;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('b', 'order', 'o-1', 'Created', '[2]'), ('c', 'order', 'o-1', 'Created', '[3]');
SAVEPOINT s;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('never', 'order', 'o-1', 'Created', '0');
ROLLBACK TO s;
UPDATE outbox_event SET status = 2 WHERE event_id = 'c';
COMMIT;
XA START 'x';
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('d', 'order', 'o-1', 'Created', '4');
XA END 'x';
XA PREPARE 'x';
XA COMMIT 'x';
CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(4000));
INSERT INTO other (text) VALUES (REPEAT('y', 300));
SET SESSION binlog_format = 'STATEMENT';
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('unseen', 'order', 'o-1', 'Created', '5');
SET SESSION binlog_format = 'ROW';
FLUSH BINARY LOGS;
ALTER TABLE outbox_event ADD COLUMN tenant VARCHAR(20) NOT NULL DEFAULT 'none' FIRST;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ('e', 'order', 'o-1', 'Created', '6');
