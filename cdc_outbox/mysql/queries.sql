-- Every statement on a table that the relay runs. `-- name --` begins one; {parts} are SQL text, %s are values.
--
-- Status changes name rows by id AND event_id and by the status they expect (promise P4), and force the primary key:
-- with as many ids as rows of one status the optimizer takes idx_status_next_retry and locks ranges under the writers.

-- checkpoint_read --
SELECT epoch, owner, server_uuid, binlog_file, binlog_pos, gtid_set, state, last_error, paused, schema_version, updated_at
FROM cdc_outbox_checkpoint WHERE name = %s AND shard = 0

-- checkpoint_create --
INSERT IGNORE INTO cdc_outbox_checkpoint (name, shard, epoch, owner, server_uuid, updated_at)
VALUES (%s, 0, 0, '', @@server_uuid, NOW(6))

-- epoch_raise --
UPDATE cdc_outbox_checkpoint
SET epoch = epoch + 1, owner = %s, updated_at = NOW(6),
  binlog_pos = IF(server_uuid <> @@server_uuid AND gtid_set IS NULL, NULL, binlog_pos), server_uuid = @@server_uuid,
  state = IF(state = 'reset', state, 'recovering')
WHERE name = %s AND shard = 0

-- fence --
SELECT 1 FROM cdc_outbox_checkpoint
WHERE name = %s AND shard = 0 AND epoch = %s AND owner = %s AND server_uuid = @@server_uuid FOR UPDATE

-- fence_and_position --
UPDATE cdc_outbox_checkpoint
SET binlog_file = %s, binlog_pos = %s, gtid_set = %s, updated_at = NOW(6)
WHERE name = %s AND shard = 0 AND epoch = %s AND owner = %s AND server_uuid = @@server_uuid

-- checkpoint_state --
UPDATE cdc_outbox_checkpoint SET state = %s, last_error = %s, updated_at = NOW(6)
WHERE name = %s AND shard = 0 AND epoch = %s AND owner = %s AND server_uuid = @@server_uuid

-- state_of_the_lock_holder --
-- a word for `status` before there is an epoch of ours; nothing depends on it
UPDATE cdc_outbox_checkpoint SET state = IF(state = 'reset', state, %s), last_error = %s, updated_at = NOW(6)
WHERE name = %s AND shard = 0

-- position_set --
INSERT INTO cdc_outbox_checkpoint
  (name, shard, epoch, owner, server_uuid, binlog_file, binlog_pos, gtid_set, state, updated_at)
VALUES (%s, 0, 1, '', @@server_uuid, %s, %s, %s, %s, NOW(6))
ON DUPLICATE KEY UPDATE epoch = epoch + 1, owner = '', server_uuid = @@server_uuid, binlog_file = VALUES(binlog_file),
  binlog_pos = VALUES(binlog_pos), gtid_set = VALUES(gtid_set), state = VALUES(state), updated_at = NOW(6)

-- pause --
INSERT INTO cdc_outbox_checkpoint (name, shard, epoch, owner, server_uuid, paused, updated_at)
VALUES (%s, 0, 0, '', @@server_uuid, %s, NOW(6))
ON DUPLICATE KEY UPDATE paused = VALUES(paused), updated_at = NOW(6)

-- is_paused --
SELECT paused FROM cdc_outbox_checkpoint WHERE name = %s AND shard = 0

-- lock_try --
SELECT GET_LOCK(%s, %s)

-- lock_holder --
SELECT IS_USED_LOCK(%s)

-- leader_ping --
SELECT IS_USED_LOCK(%s) = CONNECTION_ID(), @@server_uuid, @@global.read_only

-- sending_unlocked --
-- at take-over: what an earlier incarnation had claimed is due at once, its retries unspent
SELECT id, event_id FROM {table} WHERE status = 1 FOR UPDATE SKIP LOCKED

-- blocked_aggregates --
-- as bytes: under a collation DISTINCT would drop `a1` beside `A1`
SELECT DISTINCT {aggregate} FROM {table} WHERE status = 3 AND next_retry_at IS NOT NULL
UNION SELECT DISTINCT {aggregate} FROM {table} WHERE status = 0 AND next_retry_at IS NOT NULL
UNION SELECT DISTINCT {aggregate} FROM {table} WHERE status = 1

-- column_names --
SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION

-- statuses --
SELECT id, event_id, status, next_retry_at IS NOT NULL FROM {table} FORCE INDEX (PRIMARY) WHERE id IN ({ids}) {lock}

-- pending_count --
-- how many of these rows are pending and not parked, and a checksum of which they are: nearly always all, which spares
-- reading them one by one
SELECT COUNT(*), COALESCE(SUM(CRC32(CONCAT(id, ' ', CONVERT(event_id USING utf8mb4)))), 0)
FROM {table} FORCE INDEX (PRIMARY)
WHERE ({spans}) AND status = 0 AND next_retry_at IS NULL {lock}

-- fetch --
SELECT {columns} FROM {table} FORCE INDEX (PRIMARY) WHERE id IN ({ids}) {lock}

-- mark_sent --
UPDATE {table} FORCE INDEX (PRIMARY) SET status = 2, next_retry_at = NULL
WHERE (id, event_id) IN ({rows}) AND status IN (0, 1)

-- mark_sending --
UPDATE {table} FORCE INDEX (PRIMARY) SET status = 1
WHERE (id, event_id) IN ({rows}) AND status = 0 AND next_retry_at IS NULL

-- mark_failed --
UPDATE {table} FORCE INDEX (PRIMARY)
SET status = 3, retry_count = retry_count + 1, next_retry_at = NOW() + INTERVAL {seconds} SECOND {last_error}
WHERE (id, event_id) IN ({rows}) AND status IN (0, 1)

-- mark_dead --
UPDATE {table} FORCE INDEX (PRIMARY) SET status = 3, retry_count = max_retries, next_retry_at = NULL {last_error}
WHERE (id, event_id) IN ({rows}) AND status IN (0, 1)

-- park --
UPDATE {table} FORCE INDEX (PRIMARY) SET next_retry_at = NOW()
WHERE (id, event_id) IN ({rows}) AND status = 0 AND next_retry_at IS NULL

-- put_back --
UPDATE {table} FORCE INDEX (PRIMARY) SET status = 3, next_retry_at = NOW()
WHERE (id, event_id) IN ({rows}) AND status = 1

-- claim_due --
-- 3 or parked, due: to 0 and on to 1 in one step
UPDATE {table} FORCE INDEX (PRIMARY) SET status = 1, next_retry_at = NULL
WHERE (id, event_id) IN ({rows}) AND status IN (0, 3) AND next_retry_at IS NOT NULL

-- poll --
-- what an idle relay asks: anything due, parked, or at 1? has a person paused it?
SELECT
  EXISTS (SELECT 1 FROM {table} WHERE status = 3 AND next_retry_at <= NOW()),
  EXISTS (SELECT 1 FROM {table} WHERE status = 0 AND next_retry_at <= NOW()),
  EXISTS (SELECT 1 FROM {table} WHERE status = 1),
  (SELECT paused FROM cdc_outbox_checkpoint WHERE name = %s AND shard = 0)

-- failed_aggregates --
-- aggregates that wait for a retry that is not due yet, or for a delayed event
SELECT DISTINCT {aggregate} FROM {table} WHERE status = 3 AND next_retry_at > NOW()
UNION SELECT DISTINCT {aggregate} FROM {table} WHERE status = 0 AND next_retry_at > NOW()

-- due --
-- whose time has come, but nothing behind a row of its aggregate whose time has not: such rows must not fill the page
WITH later AS (
  SELECT aggregate, MIN(id) AS first_id FROM (
    SELECT {aggregate} AS aggregate, id FROM {table} WHERE status = 3 AND next_retry_at > NOW()
    UNION ALL SELECT {aggregate}, id FROM {table} WHERE status = 0 AND next_retry_at > NOW()
  ) AS not_yet GROUP BY aggregate
)
SELECT {columns} FROM {table} JOIN (
  (SELECT id AS due_id FROM {table} FORCE INDEX (idx_status_next_retry) LEFT JOIN later ON aggregate = {aggregate}
   WHERE status = 3 AND next_retry_at <= NOW() AND id > {above} {first} {without}
   ORDER BY id LIMIT {limit})
  UNION ALL
  (SELECT id FROM {table} FORCE INDEX (idx_status_next_retry) LEFT JOIN later ON aggregate = {aggregate}
   WHERE status = 0 AND next_retry_at <= NOW() AND id > {above} {first} {without}
   ORDER BY id LIMIT {limit})
  ORDER BY due_id LIMIT {limit}
) AS due ON id = due_id ORDER BY id FOR UPDATE SKIP LOCKED

-- open_before --
-- rows of the named aggregates that are not sent or dead, below an id
SELECT id, event_id, aggregate_type, aggregate_id FROM {table} FORCE INDEX (idx_status_next_retry)
WHERE status = 0 AND next_retry_at IS NULL AND id < {below} {only} {pending}
UNION ALL SELECT id, event_id, aggregate_type, aggregate_id FROM {table} FORCE INDEX (idx_status_next_retry)
WHERE status = 0 AND next_retry_at IS NOT NULL AND id < {below} {only}
UNION ALL SELECT id, event_id, aggregate_type, aggregate_id FROM {table} FORCE INDEX (idx_status_next_retry)
WHERE status = 1 AND id < {below} {only}
UNION ALL SELECT id, event_id, aggregate_type, aggregate_id FROM {table} FORCE INDEX (idx_status_next_retry)
WHERE status = 3 AND next_retry_at IS NOT NULL AND id < {below} {only}

-- stuck_rows --
-- failed, parked or at 1, for the named aggregates: who is still blocked, and by how much
SELECT aggregate, COUNT(*) FROM (
  SELECT {aggregate} AS aggregate FROM {table} WHERE status = 0 AND next_retry_at IS NOT NULL {only}
  UNION ALL SELECT {aggregate} FROM {table} WHERE status = 3 AND next_retry_at IS NOT NULL {only}
  UNION ALL SELECT {aggregate} FROM {table} WHERE status = 1 {only}
) AS stuck GROUP BY aggregate

-- sending_rows --
SELECT id, event_id, aggregate_type, aggregate_id, updated_at FROM {table}
WHERE status = 1 AND id > {above} ORDER BY id LIMIT {limit}

-- release_abandoned --
UPDATE {table} FORCE INDEX (PRIMARY) SET status = 3, next_retry_at = NOW()
WHERE (id, event_id) IN ({rows}) AND status = 1 AND updated_at <= NOW() - INTERVAL {seconds} SECOND

-- highest_id --
SELECT COALESCE(MAX(id), 0) FROM {table}

-- newest_rows --
-- waits, by locking, until what the binlog shows already is committed
SELECT id FROM {table} FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT 1000 LOCK IN SHARE MODE

-- pending_page --
SELECT id, event_id FROM {table} FORCE INDEX (idx_status_next_retry)
WHERE status = 0 AND next_retry_at IS NULL AND id > {above} AND id <= {top} ORDER BY id LIMIT {limit}

-- pending_rows --
SELECT {columns} FROM {table} FORCE INDEX (PRIMARY)
WHERE id IN ({ids}) AND status = 0 AND next_retry_at IS NULL ORDER BY id FOR UPDATE SKIP LOCKED

-- count_in_state --
-- index entries only, counted up to a limit
SELECT COUNT(*) FROM (SELECT 1 FROM {table} FORCE INDEX (idx_status_next_retry) WHERE {state} {limit}) AS counted

-- blocked_count --
-- the aggregate is in no index: only so many rows of each state are looked at
SELECT COUNT(DISTINCT aggregate) FROM (
  (SELECT {aggregate} AS aggregate FROM {table} WHERE status = 3 AND next_retry_at IS NOT NULL LIMIT {limit})
  UNION ALL (SELECT {aggregate} FROM {table} WHERE status = 0 AND next_retry_at IS NOT NULL LIMIT {limit})
  UNION ALL (SELECT {aggregate} FROM {table} WHERE status = 1 LIMIT {limit})
) AS blocked

-- waiting --
SELECT
  (SELECT COUNT(*) FROM {table} WHERE status = 0 AND next_retry_at IS NOT NULL),
  (SELECT COUNT(*) FROM {table} WHERE status = 3 AND next_retry_at IS NULL)

-- oldest_unsettled --
-- the first pending row and the first at 1; ids follow the order of the inserts
SELECT TIMESTAMPDIFF(SECOND, MIN(created_at), NOW()) FROM (
  (SELECT created_at FROM {table} WHERE status = 0 AND next_retry_at IS NULL ORDER BY id LIMIT 1)
  UNION ALL (SELECT created_at FROM {table} WHERE status = 1 ORDER BY next_retry_at, id LIMIT 1)
) AS oldest

-- emit --
INSERT INTO {table} (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES (%s, %s, %s, %s, %s)

-- last_errors --
SELECT id, last_error FROM {table} FORCE INDEX (PRIMARY) WHERE id IN ({ids})

-- events_in_state --
-- in the index's own order, which needs no sort
SELECT {columns} FROM {table} FORCE INDEX (idx_status_next_retry) WHERE {state} {filters} ORDER BY {order} {limit}

-- events_among_first --
-- a filter that no index serves: only the first rows of the state are looked at
SELECT {columns} FROM (
  SELECT id AS seen FROM {table} FORCE INDEX (idx_status_next_retry) WHERE {state} ORDER BY {order} LIMIT {scan}
) AS first STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON id = seen WHERE TRUE {filters} ORDER BY {order} LIMIT {limit}

-- events_by_id --
SELECT {columns} FROM {table} FORCE INDEX (PRIMARY) WHERE id IN ({ids})

-- events_by_event_id --
SELECT {columns} FROM {table} WHERE event_id IN ({event_ids})

-- free_in_state --
-- locked for the batch; what somebody else has locked is left for later
SELECT id, event_id FROM {table} FORCE INDEX (PRIMARY)
WHERE (id, event_id) IN ({rows}) AND {state} FOR UPDATE SKIP LOCKED

-- retry_by_hand --
UPDATE {table} FORCE INDEX (PRIMARY) SET retry_count = 0, next_retry_at = NOW() {last_error}
WHERE (id, event_id) IN ({rows}) AND status = 3

-- skip_by_hand --
-- retry_count above max_retries tells the leader to send the dead letter instead of the event
UPDATE {table} FORCE INDEX (PRIMARY) SET retry_count = max_retries + 1, next_retry_at = NOW() {last_error}
WHERE (id, event_id) IN ({rows}) AND status IN (0, 3) AND next_retry_at IS NOT NULL

-- purge_dead --
DELETE dead FROM {table} AS dead FORCE INDEX (PRIMARY)
WHERE (id, event_id) IN ({rows}) AND status = 3 AND next_retry_at IS NULL

-- archive_columns --
SELECT COLUMN_NAME, LOWER(COLUMN_TYPE), GENERATION_EXPRESSION <> '' FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION

-- archive_cutoff --
-- by the database's clock, in the session's time zone, once for the whole run
SELECT CAST(NOW(6) - INTERVAL %s SECOND AS CHAR)

-- archive_ends --
SELECT MIN(id), MAX(id) FROM {table}

-- archive_age --
SELECT created_at < %s FROM {table} FORCE INDEX (PRIMARY) WHERE id >= %s ORDER BY id LIMIT 1

-- archive_page --
-- a plain read: it locks nothing, and what it finds is looked at again under a lock
SELECT id, created_at < %s FROM {table} FORCE INDEX (PRIMARY)
WHERE id > %s AND id <= %s AND status = 2 ORDER BY id LIMIT {limit}

-- archive_lock --
-- how many of these rows may go, now locked: nearly always all, which spares naming them again
SELECT COUNT(*) FROM {table} FORCE INDEX (PRIMARY)
WHERE ({rows}) AND status = 2 AND created_at < %s FOR UPDATE SKIP LOCKED

-- archive_locked --
SELECT id FROM {table} FORCE INDEX (PRIMARY)
WHERE ({rows}) AND status = 2 AND created_at < %s ORDER BY id FOR UPDATE SKIP LOCKED

-- archive_copy --
INSERT INTO {into} ({columns}) SELECT {columns} FROM {table} FORCE INDEX (PRIMARY) WHERE {rows}

-- archive_delete --
DELETE sent FROM {table} AS sent FORCE INDEX (PRIMARY) WHERE ({rows}) AND status = 2

-- copy_statuses --
-- rows: transient keeps no rows but those of events that failed
SELECT event_id, status, next_retry_at IS NOT NULL FROM {table} WHERE event_id IN ({event_ids})

-- copy_in --
-- an event that is there already, or another one under the id, stays as it is
INSERT INTO {table} ({columns}) VALUES {values} ON DUPLICATE KEY UPDATE status = {table}.status

-- delete_sent --
-- rows: transient: the copy of an event that failed has been sent in the end
DELETE sent FROM {table} AS sent FORCE INDEX (PRIMARY)
WHERE (id, event_id) IN ({rows}) AND status IN (0, 1)

-- delete_inserted --
DELETE inserted FROM {table} AS inserted WHERE event_id = %s

-- replay --
INSERT INTO {table} ({columns}) VALUES ({values})

-- schema_versions --
SELECT MIN(schema_version), MAX(schema_version) FROM cdc_outbox_checkpoint

-- schema_version_set --
UPDATE cdc_outbox_checkpoint SET schema_version = %s, updated_at = updated_at WHERE schema_version < %s
