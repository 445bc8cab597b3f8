-- Every kind of JSON value at its extremes, values of SQL types, gaps that partial updates leave, large containers.
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES
  ('integers', 't', 'i', 'e', '[0, -1, 32767, 32768, -32768, -32769, 65535, 65536, 2147483647, 2147483648, -2147483648, -2147483649, 4294967295, 4294967296, 9223372036854775807, 9223372036854775808, -9223372036854775808, 18446744073709551615]'),
  ('doubles', 't', 'i', 'e', '[18446744073709551616, -9223372036854775809, 0.0, -0.0, 1.0, 0.1, 1e14, 1e15, 1e16, 123456789012345.6, 1234567890123456.7, 1e-7, 1e-15, 1.5e-15, 1e-16, 1.7976931348623157e308, -1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 0.30000000000000004]'),
  ('texts', 't', 'i', 'e', '["", "\\"\\\\/\\b\\f\\n\\r\\t", "\\u0000\\u0001\\u001f\\u007f", "é漢😀\\ud83d\\ude00\\u2028", {"\\u0000 \\"é😀\\"": "key"}]'),
  ('lengths', 't', 'i', 'e', JSON_ARRAY(REPEAT('a', 127), REPEAT('b', 128), REPEAT('é', 8192))),
  ('literals', 't', 'i', 'e', '[null, true, false, {"n": null, "t": true}, [], {}]'),
  ('a literal', 't', 'i', 'e', 'null'), ('an integer', 't', 'i', 'e', '70000'), ('a text', 't', 'i', 'e', '"x"');
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES
  ('decimals', 't', 'i', 'e', JSON_ARRAY(1.50, -0.00, 0.000000000000000000000000000001, CAST('-12345678901234567890123456789012345.123456789012345678901234567890' AS DECIMAL(65, 30)), CAST(7 AS DECIMAL(1, 0)))),
  ('times', 't', 'i', 'e', JSON_ARRAY(CAST('2026-11-30' AS DATE), CAST('1000-01-01 00:00:00' AS DATETIME), CAST('9999-12-31 23:59:59.999999' AS DATETIME(6)), CAST('2026-11-30 12:34:56.7' AS DATETIME(1)), CAST('-838:59:59' AS TIME), CAST('25:00:00.000001' AS TIME(6)), CAST('-00:00:00.5' AS TIME(1)), CAST('2026' AS YEAR))),
  ('bytes', 't', 'i', 'e', JSON_ARRAY(x'', x'00', x'616263', CAST(REPEAT('y', 57) AS BINARY), CAST(REPEAT('z', 58) AS BINARY), b'10101', CAST(x'ff' AS BINARY(3)))),
  ('a decimal', 't', 'i', 'e', CAST(1.5 AS JSON)), ('an object', 't', 'i', 'e', JSON_OBJECT('d', 1.10, 'at', CAST('2026-11-30 01:02:03' AS DATETIME), 'raw', x'00ff'));
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES
  ('original', 't', 'i', 'e', '{"a": "long enough", "b": [1, "text", {"c": "deep"}], "d": 1000000, "e": "last"}');
UPDATE outbox_event SET payload = JSON_SET(payload, '$.a', 'x', '$.b[1]', 'y', '$.d', 2.5) WHERE event_id = 'original';
UPDATE outbox_event SET payload = JSON_REMOVE(payload, '$.b[2].c', '$.e') WHERE event_id = 'original';
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)
  SELECT 'with gaps', aggregate_type, aggregate_id, event_type, payload FROM outbox_event WHERE event_id = 'original';
UPDATE outbox_event SET payload = JSON_REMOVE(payload, '$.a', '$.b', '$.d') WHERE event_id = 'original';
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)
  SELECT 'emptied', aggregate_type, aggregate_id, event_type, payload FROM outbox_event WHERE event_id = 'original';
INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES
  ('large', 't', 'i', 'e', JSON_ARRAY(-70000, 4294967295, FALSE, -7, JSON_OBJECT('big', REPEAT('x', 65536), 'i', -70000, 'u', 3000000000, 'n', JSON_ARRAY(1, -1, 65535, NULL, TRUE, 1.5, 9223372036854775807), 'o', JSON_OBJECT('in', JSON_ARRAY(JSON_OBJECT('deep', 1.25))), 'd', 1.10))),
  ('levels', 't', 'i', 'e', CONCAT(REPEAT('[', 100), REPEAT(']', 100)));
