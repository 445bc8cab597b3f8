-- Who has which Snowflake worker id, by the database's clock, and the times (ms since 1970) that its ids may hold:
-- floor_ms < t <= ceiling_ms. A later holder begins at ceiling_ms: never delete a row, or its times are given again.
CREATE TABLE IF NOT EXISTS cdc_outbox_worker (
  worker_id INT NOT NULL PRIMARY KEY,
  owner CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  host VARCHAR(255) NOT NULL,
  lease_until DATETIME(3) NOT NULL,
  floor_ms BIGINT NOT NULL,
  ceiling_ms BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
