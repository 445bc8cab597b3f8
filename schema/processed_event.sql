-- The consumer's memory: which events a consumer group has processed (state 1) or is processing (state 0).
-- Groups and ids are compared as bytes: to a case-insensitive key a new event may look like an old one.
CREATE TABLE IF NOT EXISTS processed_event (
  consumer_group VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  event_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  state TINYINT NOT NULL DEFAULT 0,
  lease_until DATETIME(3) NULL,
  attempts INT NOT NULL DEFAULT 0,
  created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  processed_at DATETIME(3) NULL,
  PRIMARY KEY (consumer_group, event_id),
  INDEX idx_state_processed (state, processed_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
