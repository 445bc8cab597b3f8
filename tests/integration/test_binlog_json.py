"""JSON from the binlog is byte for byte what `CAST(payload AS CHAR)` prints, for whatever the server can store."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable
from datetime import date

import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.binlog_tail import Database, Tail

pytestmark = pytest.mark.usefixtures("both_decoders")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Other values each run; the seed is shown where the test fails."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


INSERT = (
    "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
    " VALUES (%s, 'order', 'o1', 'Created', {})"
)


def compare(outbox: Database, tail: Tail) -> None:
    """Every event that came against its row."""
    expected = dict(outbox.execute("SELECT event_id, CAST(CAST(payload AS CHAR) AS BINARY) FROM outbox_event"))
    got = {event.event_id: event.payload for event in tail.events}
    assert not any(event.incomplete for event in tail.events)
    assert got.keys() <= expected.keys()
    for event_id, payload in got.items():
        assert payload == expected[event_id]


CHARACTERS = 'ab"\\/\b\f\n\r\t\x00\x01\x1f\x7f é漢😀{}[]:,\u2028'
INTEGERS = [0, -1, 2**15 - 1, -(2**15), 2**16 - 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1]


def text(rng: random.Random) -> str:
    size = rng.choice([0, 1, 126, 127, 128, 129, 16_383, 16_384]) if rng.random() < 0.1 else rng.randrange(12)
    return "".join(rng.choice(CHARACTERS) for _ in range(size))


def double(rng: random.Random) -> float:
    kinds: list[Callable[[], float]] = [
        lambda: struct.unpack("<d", rng.randbytes(8))[0],
        lambda: rng.random() * 10.0 ** rng.randrange(-20, 25),
        lambda: float(rng.randrange(-(10**17), 10**17)),
        lambda: round(rng.random() * 1000, 2),
        lambda: float(f"{rng.randrange(1, 10 ** rng.randrange(1, 18))}e{rng.randrange(-330, 290)}"),
        lambda: rng.choice([0.0, -0.0, 1e15, 1e16, 1e-15, 1e-16, 5e-324, 1.7976931348623157e308, 2.0**53]),
    ]
    number = rng.choice(kinds)()
    return number if math.isfinite(number) else 0.1


def scalar(rng: random.Random) -> object:
    kinds: list[Callable[[], object]] = [
        lambda: rng.choice([None, True, False]),
        lambda: rng.choice(INTEGERS),
        lambda: rng.randrange(-(10 ** rng.randrange(1, 19)), 10 ** rng.randrange(1, 19)),
        lambda: double(rng),
        lambda: text(rng),
    ]
    return rng.choice(kinds)()


def document(rng: random.Random, depth: int = 0) -> object:
    kind = rng.randrange(8)
    if kind < 5 or depth == 4:
        return scalar(rng)
    size = rng.choice([60, 64, 65, 300]) if rng.random() < 0.05 else rng.randrange(5)
    if kind == 5:
        return [document(rng, depth + 1) for _ in range(size)]
    return {text(rng) or f"k{i}": document(rng, depth + 1) for i in range(size)}


def test_documents(outbox: Database, rng: random.Random) -> None:
    start = outbox.position()
    outbox.connection.begin()
    for i in range(300):
        value = json.dumps(document(rng), ensure_ascii=rng.random() < 0.5)
        outbox.execute(INSERT.format("%s"), (f"e{i}", value))
        if i % 20 == 0:
            outbox.connection.commit()
            outbox.connection.begin()
    outbox.connection.commit()
    with Tail(outbox, start) as tail:
        tail.wait_for_events(300)
    compare(outbox, tail)


def test_one_shape_many_times(outbox: Database, rng: random.Random) -> None:
    """What recurs is printed by generated code; values change their sizes, and with them their types."""
    start = outbox.position()
    for i in range(200):
        value = {
            "id": rng.choice(INTEGERS),
            "name": text(rng),
            "total": double(rng),
            "customer": {"name": text(rng), "vip": rng.random() < 0.5, "since": None, "score": rng.randrange(300)},
            "lines": [{"sku": text(rng), "price": double(rng), "n": i} for _ in range(rng.randrange(3))],
            "tags": ["a", text(rng)],
            'a "quoted" {key}\\': i,
        }
        outbox.execute(INSERT.format("%s"), (f"e{i}", json.dumps(value)))
    with Tail(outbox, start) as tail:
        tail.wait_for_events(200)
    compare(outbox, tail)


def test_doubles(outbox: Database, rng: random.Random) -> None:
    start = outbox.position()
    for i in range(20):
        value = "[" + ", ".join(repr(double(rng)) for _ in range(1000)) + "]"
        outbox.execute(INSERT.format("%s"), (f"e{i}", value))
    with Tail(outbox, start) as tail:
        tail.wait_for_events(20)
    compare(outbox, tail)


def sql_value(rng: random.Random) -> str:
    """An SQL expression whose type JSON does not have."""
    precision = rng.randrange(1, 66)
    scale = rng.randrange(min(30, precision) + 1)
    digits = "".join(rng.choice("000123456789") for _ in range(precision))
    number = f"{rng.choice(['', '-'])}{digits[: precision - scale] or '0'}.{digits[precision - scale :]}"
    day = f"{rng.randrange(1000, 9999)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    seconds = f"{rng.randrange(60):02}:{rng.randrange(60):02}.{rng.randrange(10**6):06}"
    return rng.choice(
        [
            f"CAST('{number}' AS DECIMAL({precision}, {scale}))",
            f"CAST('{day}' AS DATE)",
            f"CAST('{day} {rng.randrange(23):02}:{seconds}' AS DATETIME({rng.randrange(7)}))",
            f"CAST('{rng.choice(['', '-'])}{rng.randrange(838):02}:{seconds}' AS TIME({rng.randrange(7)}))",
            f"x'{rng.randbytes(rng.choice([0, 1, 2, 3, 56, 57, 58, 200])).hex()}'",
            rng.choice(["b'10101'", "CAST('2020' AS YEAR)", "NOW(6)", "1.50", "1.5e0", "TRUE", "POINT(1, 2)"]),
        ]
    )


def test_values_of_sql_types(outbox: Database, rng: random.Random) -> None:
    start = outbox.position()
    stored = 0
    for i in range(300):
        pairs = ", ".join(f"'k{j}', {sql_value(rng)}" for j in range(rng.randrange(1, 5)))
        expression = rng.choice([f"JSON_OBJECT({pairs})", f"JSON_ARRAY({pairs})", f"CAST({sql_value(rng)} AS JSON)"])
        try:
            outbox.execute(INSERT.replace("%s", f"'e{i}'").format(expression))
            stored += 1
        except pymysql.MySQLError as error:  # a time of day that rounds into a date the server refuses
            assert error.args[0] == 1292, error
    with Tail(outbox, start) as tail:
        tail.wait_for_events(stored)
    compare(outbox, tail)


@pytest.mark.parametrize("options", ["", "PARTIAL_JSON"])
def test_copies_of_partially_updated_documents(outbox: Database, rng: random.Random, options: str) -> None:
    """Updates in place leave gaps in the binary form, and INSERT … SELECT copies them; the updates are passed over."""
    outbox.execute("SET SESSION binlog_row_value_options = %s", (options,))
    for i in range(60):
        value = {
            f"f{j}": rng.choice(["x" * rng.randrange(200), 10**9, [1, "y" * 50], {"a": "b" * 30}]) for j in range(5)
        }
        outbox.execute(INSERT.format("%s"), (f"p{i}", json.dumps(value)))
    start = outbox.position()
    for _ in range(6):
        key = f"$.f{rng.randrange(5)}"
        new = rng.choice(["'zz'", "1", "123456789", "2.5e0", "JSON_ARRAY(1)", "NULL", "REPEAT('w', 90)"])
        outbox.execute(f"UPDATE outbox_event SET payload = JSON_SET(payload, '{key}', {new})")
        outbox.execute(
            f"UPDATE outbox_event SET payload = JSON_REMOVE(payload, '$.f{rng.randrange(5)}') WHERE id % 7 = 0"
        )
    outbox.execute(
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) SELECT"
        " CONCAT('copy ', event_id), aggregate_type, aggregate_id, event_type, payload FROM outbox_event"
    )
    with Tail(outbox, start) as tail:
        tail.wait_for_events(60)
    compare(outbox, tail)


def test_fifty_thousand_keys_and_large_offsets(outbox: Database) -> None:
    start = outbox.position()
    values = [
        {f"key {i}": i for i in range(50_000)},
        [i * 1000 for i in range(50_000)],
        [{"a": [i], "b": f"text {i}"} for i in range(20_000)],
        {"small": {"x": 1}, "large": "y" * 70_000, "after": [1.5, True]},
        ["z" * 2_100_000],
    ]
    for i, value in enumerate(values):
        outbox.execute(INSERT.format("%s"), (f"e{i}", json.dumps(value)))
    with Tail(outbox, start) as tail:
        tail.wait_for_events(len(values))
    compare(outbox, tail)


def test_a_hundred_levels(outbox: Database) -> None:
    start = outbox.position()
    outbox.execute(INSERT.format("%s"), ("arrays", "[" * 100 + "]" * 100))
    outbox.execute(INSERT.format("%s"), ("objects", '{"a": ' * 99 + "1" + "}" * 99))
    with Tail(outbox, start) as tail:
        tail.wait_for_events(2)
    compare(outbox, tail)


def test_an_empty_column_is_the_null_literal(outbox: Database) -> None:
    start = outbox.position()
    outbox.execute("SET SESSION sql_mode = ''")
    outbox.execute(
        "INSERT IGNORE INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type)"
        " VALUES ('e', 'order', 'o1', 'Created')"
    )
    with Tail(outbox, start) as tail:
        (event,) = tail.wait_for_events(1)
    assert event.payload == b"null"
    compare(outbox, tail)


# -- whatever a server can hold ---------------------------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(["é" * 63, "z" * 128])
PLAIN_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from(INTEGERS)
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(ANY_TEXT, inner, max_size=10),
    max_leaves=20,
)


def quoted(value: str) -> str:
    """A text as an SQL expression, whatever the mode."""
    return f"CONVERT(x'{value.encode().hex()}' USING utf8mb4)"


def sql_array(members: list[str]) -> str:
    return f"JSON_ARRAY({', '.join(members)})"


def sql_object(members: dict[str, str]) -> str:
    pairs = [f"{quoted(key)}, {member}" for key, member in members.items()]
    return f"JSON_OBJECT({', '.join(pairs)})"


def nested(expression: str, levels: int) -> str:
    """Inside so many arrays and objects; the server takes a hundred."""
    for level in range(levels):
        expression = sql_array([expression]) if level % 2 else sql_object({"k": expression})
    return expression


DAYS = st.dates(date(1000, 1, 1)).map(str)
CLOCKS = st.times().map(lambda time: f"{time:%H:%M:%S.%f}")
DECIMALS = st.tuples(st.integers(1, 65), st.integers(0, 30)).flatmap(
    lambda size: st.integers(-(10 ** size[0]) + 1, 10 ** size[0] - 1).map(
        lambda number: f"CAST('{number}e-{min(size)}' AS DECIMAL({size[0]}, {min(size)}))"
    )
)
OPAQUE_VALUES = (
    DECIMALS
    | DAYS.map(lambda day: f"CAST('{day}' AS DATE)")
    | st.builds(lambda day, clock: f"CAST('{day} {clock}' AS DATETIME(6))", DAYS, CLOCKS)
    | st.builds(lambda day, clock: f"TIMESTAMP'{day} {clock}'", DAYS, CLOCKS)
    | st.builds(
        lambda hours, clock: f"CAST('{hours}{clock[2:]}' AS TIME(6))", st.integers(-837, 837).filter(bool), CLOCKS
    )
    | st.binary(max_size=120).map(lambda content: f"x'{content.hex()}'")
    | st.sampled_from(
        [
            "b'101'",
            "CAST('2020' AS YEAR)",
            "POINT(1, 2)",
            "1.5e0",
            "TRUE",
            "NULL",
            "REPEAT('é', 8192)",
            "REPEAT('y', 70000)",
        ]
    )
)
JSON_EXPRESSIONS = st.builds(
    nested,
    st.recursive(
        OPAQUE_VALUES | PLAIN_JSON.map(lambda value: f"CAST({quoted(json.dumps(value))} AS JSON)"),
        lambda inner: (
            st.lists(inner, max_size=6).map(sql_array) | st.dictionaries(ANY_TEXT, inner, max_size=6).map(sql_object)
        ),
        max_leaves=12,
    ),
    st.sampled_from([0, 0, 0, 3, 85]),
)


def test_whatever_a_server_can_hold(outbox: Database) -> None:
    """Each expression is written, read back from the binlog and compared with what the server prints for it."""
    outbox.execute("SET SESSION max_error_count = 0")
    with Tail(outbox, outbox.position()) as tail:

        @given(st.lists(JSON_EXPRESSIONS, min_size=1, max_size=12))
        @settings(max_examples=40, suppress_health_check=list(HealthCheck))
        def write_and_compare(expressions: list[str]) -> None:
            outbox.connection.rollback()  # of an example that failed
            outbox.execute("DELETE FROM outbox_event")
            already = len(tail.events)
            outbox.connection.begin()
            for i, expression in enumerate(expressions):
                outbox.execute(INSERT.replace("%s", f"'{already + i}'").format(sql_array([expression])))
            outbox.connection.commit()
            new = tail.wait_for_events(already + len(expressions))[already:]
            expected = dict(outbox.execute("SELECT event_id, CAST(CAST(payload AS CHAR) AS BINARY) FROM outbox_event"))
            assert {event.event_id: event.payload for event in new} == expected

        write_and_compare()
