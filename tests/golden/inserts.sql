-- Rows as applications write them, and every kind of JSON value.
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES
  ('a', 'order', 'o-1', 'Created', '{"id": 1, "name": "Zoë", "emoji": "😀", "nested": {"list": [1, 2.5, null, true, false]}}'),
  ('b', 'order', '订单-2', 'Created', '[]'),
  ('c', 'order', 'o-3', 'Created', '{}');
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, status, retry_count, max_retries, next_retry_at)
  VALUES ('d', 'order', 'o-4', 'Paid', '"text"', 0, 2, 5, '2030-01-01 00:00:00');
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES
  ('integers', 't', 'i', 'e', '[0, -1, 32767, -32768, 65535, 2147483647, -2147483648, 4294967295, 9223372036854775807, -9223372036854775808, 18446744073709551615]'),
  ('doubles', 't', 'i', 'e', '[0.0, -0.0, 1.0, 0.1, 1e-7, 1e-15, 1e-16, 1e14, 1e15, 123456789012345.6, 1234567890123456.7, 1e20, 1e22, 1.5e300, 5e-324, -2.5]'),
  ('escapes', 't', 'i', 'e', '"quote \\" backslash \\\\ slash / \\b\\f\\n\\r\\t \\u0000 \\u001f \\u007f \\u2028 é 漢 😀"'),
  ('scalars', 't', 'i', 'e', 'null'),
  ('keys', 't', 'i', 'e', '{"": 1, "bb": 2, "a": 3, "ü": 4, "a long key with \\"quotes\\"": 5}');
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES
  ('long strings', 't', 'i', 'e', JSON_OBJECT('k', REPEAT('x', 127), 'l', REPEAT('y', 128), 'after', 1));
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES
  ('sql types', 't', 'i', 'e', JSON_OBJECT('d', 1.50, 'n', -0.001, 'big', CAST('123456789012345678901234567890.123456789' AS DECIMAL(39, 9)),
    'date', CAST('2026-11-30' AS DATE), 'at', CAST('2026-11-30 12:34:56.789' AS DATETIME(3)), 'time', CAST('-101:02:03.5' AS TIME(1)),
    'blob', x'00ff10', 'bits', b'101', 'long blob', REPEAT(x'ab', 60)));
