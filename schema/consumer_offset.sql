-- How far a consumer group has come, kept in the transaction of what it did: next_offset is the next one to read.
CREATE TABLE IF NOT EXISTS consumer_offset (
  consumer_group VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  topic VARCHAR(249) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  partition_id INT NOT NULL,
  next_offset BIGINT NOT NULL,
  updated_at DATETIME(3) NOT NULL,
  PRIMARY KEY (consumer_group, topic, partition_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
