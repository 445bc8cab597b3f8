-- Strings of other character sets, and fixed-length ones.
-- extra: cyr, han, wide, kana, georgian, fixed, filled
ALTER TABLE outbox_event ADD cyr VARCHAR(40) CHARACTER SET koi8r, ADD han CHAR(40) CHARACTER SET gbk, ADD wide VARCHAR(40) CHARACTER SET utf16le,
  ADD kana TEXT CHARACTER SET sjis, ADD georgian VARCHAR(300) CHARACTER SET geostd8, ADD fixed CHAR(9) CHARACTER SET ucs2, ADD filled BINARY(6),
  MODIFY event_id VARCHAR(64) CHARACTER SET cp1251 NOT NULL, MODIFY aggregate_id VARCHAR(64) CHARACTER SET big5 NOT NULL;
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, cyr, han, wide, kana, georgian, fixed, filled) VALUES
  ('событие', 'order', '訂單-1', 'Created', '{"é": "漢"}', 'привет', '订单 ', 'naïve 😀', 'ア\\カナ', 'გამარჯობა', 'ab ', x'616200'),
  ('пусто', 'order', '', 'Created', '[]', '', '', '', '', '', '', x'');
