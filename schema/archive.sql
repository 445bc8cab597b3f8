-- Where sent rows may be moved to: the outbox row as it was, and when it was moved.
-- Ids are the outbox's own; they come back after a TRUNCATE, so the key holds event_id too. It holds created_at because
-- the partitions are by it: months are split off p_rest ahead of time, and old ones dropped at no cost (docs/how-to.md).
CREATE TABLE IF NOT EXISTS outbox_event_archive (
  id BIGINT NOT NULL,
  event_id VARCHAR(64) NOT NULL COMMENT '事件唯一ID（幂等键）',
  aggregate_type VARCHAR(64) NOT NULL COMMENT '聚合类型，如 "order"',
  aggregate_id VARCHAR(64) NOT NULL COMMENT '聚合ID，如订单号',
  event_type VARCHAR(128) NOT NULL COMMENT '事件类型，如 "OrderCreated"',
  payload JSON NOT NULL COMMENT '事件体，JSON格式',
  status TINYINT NOT NULL DEFAULT 0 COMMENT '状态：0=待发送，1=发送中，2=已发送，3=失败',
  retry_count INT NOT NULL DEFAULT 0 COMMENT '已重试次数',
  max_retries INT NOT NULL DEFAULT 3 COMMENT '最大重试次数',
  next_retry_at DATETIME DEFAULT NULL COMMENT '下次重试时间',
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  archived_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT '归档时间',
  PRIMARY KEY (id, event_id, created_at),
  INDEX idx_event_id (event_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
PARTITION BY RANGE COLUMNS (created_at) (PARTITION p_rest VALUES LESS THAN (MAXVALUE));
