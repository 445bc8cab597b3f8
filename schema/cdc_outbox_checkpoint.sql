-- Where each relay stands: its epoch and owner (the fence), its resumable position and its last words.
-- Names, owners and UUIDs are compared as bytes; a position of NULL has never been written.
CREATE TABLE IF NOT EXISTS cdc_outbox_checkpoint (
  name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  shard INT NOT NULL DEFAULT 0,
  epoch BIGINT NOT NULL DEFAULT 0,
  owner VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  server_uuid CHAR(36) CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  binlog_file VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  binlog_pos BIGINT UNSIGNED DEFAULT NULL,
  gtid_set LONGTEXT CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  state VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  last_error VARCHAR(512) DEFAULT NULL,
  paused TINYINT NOT NULL DEFAULT 0,
  schema_version INT NOT NULL DEFAULT 1,
  updated_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  PRIMARY KEY (name, shard)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
