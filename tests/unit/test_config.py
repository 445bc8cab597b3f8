"""Settings: what is read from where, what is refused, and that messages help without giving a secret away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_outbox.config import Settings, load_settings
from cdc_outbox.config_schema import schema_text
from cdc_outbox.config_source import dotted, setting_kinds
from cdc_outbox.errors import Refused
from cdc_outbox.model import TableName

ROOT = Path(__file__).parents[2]
SECRET = "hunter2-s3cr3t"

MINIMAL = f"""\
name: orders
mysql:
  user: relay
  password: {SECRET}
  database: shop
kafka:
  bootstrap_servers: localhost:9092
"""


def load(tmp_path: Path, text: str, **environ: str) -> Settings:
    file = tmp_path / "relay.yaml"
    file.write_text(text, "utf-8")
    return load_settings(file, environ)


def refusal(tmp_path: Path, text: str, **environ: str) -> str:
    """The whole message, hint included, of what must be refused; it never holds the secret."""
    with pytest.raises(Refused) as caught:
        load(tmp_path, text, **environ)
    message = f"{caught.value.message}\n{caught.value.hint}".replace(str(tmp_path) + "/", "")
    assert SECRET not in message
    return message


def test_minimal_file_has_the_contract_defaults(tmp_path: Path) -> None:
    settings = load(tmp_path, MINIMAL)
    assert settings.mysql.port == 3306
    assert settings.kafka.topic == "outbox.event.{aggregate_type}"
    assert settings.retry.waits == [10.0, 60.0, 600.0, 3600.0]
    assert (settings.kafka.linger, settings.kafka.batch_bytes) == (0.001, 256 * 1024)
    assert settings.limits.max_in_flight_bytes == 64 * 1024**2
    assert settings.http is not None
    assert settings.http.address == ("127.0.0.1", 9187)
    assert settings.table_names == [TableName("shop", "outbox_event")]


def test_settings_are_frozen(tmp_path: Path) -> None:
    settings = load(tmp_path, MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        settings.mysql.port = 1


def test_tables_may_name_their_database(tmp_path: Path) -> None:
    settings = load(tmp_path, MINIMAL + "outbox: {tables: [outbox_event, stock.outbox]}\n")
    assert settings.table_names == [TableName("shop", "outbox_event"), TableName("stock", "outbox")]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("10s", 10), ("1.5m", 90), ("1h", 3600), ("7d", 604800), ("2", 2), ("0.5", 0.5)],
)
def test_durations(tmp_path: Path, text: str, seconds: float) -> None:
    assert load(tmp_path, MINIMAL + f"retry: {{waits: [{text}]}}\n").retry.waits == [seconds]


@pytest.mark.parametrize(
    ("text", "size"),
    [("2000", 2000), ("256KiB", 262144), ("1MB", 1_000_000), ("1.5MiB", 1572864), ("4 kB", 4000)],
)
def test_sizes(tmp_path: Path, text: str, size: int) -> None:
    assert load(tmp_path, MINIMAL + f"limits: {{max_in_flight_bytes: {text}}}\n").limits.max_in_flight_bytes == size


def test_brokers(tmp_path: Path) -> None:
    settings = load(tmp_path, MINIMAL.replace("localhost:9092", "'a:1, [::1]:2'"))
    assert settings.kafka.bootstrap_servers == "a:1,[::1]:2"
    assert "must be host:port" in refusal(tmp_path, MINIMAL.replace("localhost:9092", "PLAINTEXT://a:1"))


def test_scalars_are_read_as_yaml_1_2_reads_them(tmp_path: Path) -> None:
    settings = load(tmp_path, MINIMAL.replace("user: relay", "user: on\n  time_zone: +08:00"))
    assert settings.mysql.user == "on"
    assert settings.mysql.time_zone == "+08:00"


def test_an_empty_section_means_its_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL + "retry:\nbinlog: null\nhttp: null\n").http is None


def test_anchors_and_merges(tmp_path: Path) -> None:
    text = MINIMAL + "limits: &l {batch: 7}\n"
    assert load(tmp_path, text).limits.batch == 7
    merged = "kafka:\n  security: &tls {protocol: SSL}\n  bootstrap_servers: a:1\n"
    before = MINIMAL.split("kafka:", maxsplit=1)[0]
    settings = load(tmp_path, before + merged + "http: {<<: {listen: 'h:1'}}\n")
    assert settings.kafka.security.protocol == "SSL"
    assert settings.http is not None
    assert settings.http.listen == "h:1"


# --- what is wrong is named with file, line, key and what was probably meant -------------------------------


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        ("limit: {}", "relay.yaml:8: limit: no such setting; did you mean limits?"),
        ("batch: 5", "relay.yaml:8: batch: no such setting; did you mean limits.batch?"),
        ("outbox: {table: x}", "relay.yaml:8: outbox.table: no such setting; did you mean outbox.tables?"),
        (
            "outbox:\n  claim: rows",
            "relay.yaml:9: outbox.claim: found 'rows'; must be one of leader, row (did you mean row?)",
        ),
        (
            "log: {level: WARN}",
            "found 'WARN'; must be one of debug, info, warning, error (did you mean warning?)",
        ),
        ("limits: {batch: many}", "limits.batch: found 'many'; must be a whole number"),
        ("limits: {batch: 1.5}", "limits.batch: found 1.5; must be a whole number"),
        ("limits: {batch: true}", "limits.batch: found true; must be a number"),
        ("limits: {batch: 5001}", "limits.batch: found 5001; must be less than or equal to 5000"),
        ("limits: {batch: }", "limits.batch: found nothing; must be a whole number"),
        ("limits: 5", "relay.yaml:8: limits: found a number; must be a section"),
        ("retry: {waits: []}", "retry.waits"),
        (
            "retry:\n  waits:\n  - 10s\n  - soon",
            "relay.yaml:11: retry.waits[1]: found 'soon'; must be a duration",
        ),
        ("retry: {waits: -1s}", "retry.waits: found '-1s'; must be a list"),
        ("retry: {waits: [-1]}", "retry.waits[0]: found -1; must be from 0s to 365d"),
        ("retry: {jitter: .nan}", "retry.jitter"),
        ("retry: {poll_interval: 1e999}", "must be a duration"),
        ("leadership_timeout: 2s", "leadership_timeout: found '2s'; must be from 3s to 1h"),
        ("http: {listen: 9187}", "http.listen: found 9187; must be text"),
        ("http: {listen: ':9187'}", "http.listen: found ':9187'; must be host:port"),
        ("http: {listen: 'h:99999'}", "must be host:port"),
        ("http: {listen: 'a..b:9187'}", "http.listen: found 'a..b:9187'; must be a host name or an address"),
        (
            "binlog: {source: {host: replica..internal}}",
            "binlog.source.host: found 'replica..internal'; must be a host name or an address",
        ),
        ("outbox: {tables: []}", "outbox.tables"),
        ("outbox: {tables: [a.b.c]}", "outbox.tables: 'a.b.c' must be"),
        ("outbox: {tables: [a, shop.a]}", "outbox: tables names shop.a twice"),
        ("name: again", "relay.yaml:8: name: is given twice (first in line 1)"),
        ("? [a]\n: b", "a key must be plain text"),
        ("log: {level: !x info}", "begins with !, a YAML tag"),
    ],
)
def test_refused_with_place_and_help(tmp_path: Path, addition: str, expected: str) -> None:
    assert expected in refusal(tmp_path, MINIMAL + addition + "\n")


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        (
            "batch_bytes: 2MiB",
            "relay.yaml:8: kafka.batch_bytes: 2097152 is more than max_record_bytes, 1048576",
        ),
        ("options: {acks: 1}", "relay.yaml:8: kafka.options: need client named"),
        ("options: {a: [1]}\n  client: confluent", "kafka.options.a: found a list; must be text"),
        ("topic: 'a b'", "kafka.topic: found 'a b'; must be a topic name"),
        ("topic: 'x.{agregate_type}'", "{aggregate_type}"),
        ("topic: '{aggregate_type'", "kafka.topic"),
        ("topic: '{aggregate_type!r}'", "kafka.topic"),
        ("topic: ''", "kafka.topic"),
        ("topic_map: {a: 'b c'}", "kafka.topic_map.a: found 'b c'; must be a Kafka topic name"),
        ("dead_letter_topic: '..'", "must be a Kafka topic name"),
        (
            "topic: x\n  dead_letter_topic: x",
            "relay.yaml:9: kafka.dead_letter_topic: must not be a topic of events",
        ),
        ("create_topics: {partitions: 3}", "kafka.create_topics.replication_factor: is missing"),
        ("security: {protocol: SASL_SSL}", "kafka.security: SASL_SSL needs sasl_mechanism"),
        ("security: {username: u}", "kafka.security.username: is set, but protocol PLAINTEXT uses no SASL"),
        ("security: {protocol: SASL_SSL, sasl_mechanism: PLAIN, username: u}", "needs password beside it"),
        (
            "security: {protocol: SASL_SSL, sasl_mechanism: OAUTHBEARER, username: u, password: p}",
            "kafka.security.sasl_mechanism: OAUTHBEARER needs token_url beside it",
        ),
        (
            "security: {protocol: SASL_SSL, sasl_mechanism: PLAIN, username: u, password: p, scope: s}",
            "kafka.security.scope: needs sasl_mechanism: OAUTHBEARER beside it",
        ),
        ("security: {token_url: 'ftp://x'}", "must be an http:// or https:// address"),
        ("security: {token_url: 'https://u:p@x/token'}", "without user and password in it"),
        (
            "security: {protocol: SSL, ca: /no/such/file}",
            "kafka.security.ca: found '/no/such/file'; must be a file",
        ),
        ("client: confluent-kafka", "did you mean confluent?"),
    ],
)
def test_impossible_in_kafka(tmp_path: Path, addition: str, expected: str) -> None:
    assert expected in refusal(tmp_path, MINIMAL + "  " + addition + "\n")


@pytest.mark.parametrize(
    ("addition", "why"),
    [
        ("outbox: {rows: transient}", "rows: transient needs binlog: {on_purged: stop}"),
        ("outbox: {rows: transient, claim: row}", "outbox.rows: transient leaves no row to claim"),
    ],
)
def test_rows_that_are_deleted_at_once_cannot_be_claimed_nor_swept(tmp_path: Path, addition: str, why: str) -> None:
    assert why in refusal(tmp_path, MINIMAL + addition + "\n")


def test_certificate_and_key_belong_together(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("")
    text = MINIMAL.replace("user: relay", f"user: relay\n  tls: {{cert: {tmp_path}/pem}}")
    assert "mysql.tls.cert: needs key beside it" in refusal(tmp_path, text)


def test_a_source_leaves_the_rest_to_mysql(tmp_path: Path) -> None:
    given = "  tls: {mode: required}\n  server_id: 7\n  time_zone: '+08:00'\n"
    text = MINIMAL.replace("user: relay\n", f"user: relay\n{given}")
    assert text != MINIMAL
    text += "binlog: {source: {host: replica, port: 3307}}\n"
    settings = load(tmp_path, text)
    expected = settings.mysql.model_copy(update={"host": "replica", "port": 3307})
    assert settings.binlog_server == expected and expected.tls.mode == "required" and expected.server_id == 7
    other = load(
        tmp_path,
        text,
        CDC_OUTBOX_BINLOG__SOURCE__USER="reader",
        CDC_OUTBOX_BINLOG__SOURCE__PASSWORD="other-secret",
        CDC_OUTBOX_BINLOG__SOURCE__SERVER_ID="8",
        CDC_OUTBOX_BINLOG__SOURCE__TLS__MODE="disabled",
    ).binlog_server
    assert (other.user, other.password.get_secret_value(), other.server_id) == ("reader", "other-secret", 8)
    assert other.tls.mode == "disabled" and "other-secret" not in repr(other)


def test_without_a_source_the_primary_is_read(tmp_path: Path) -> None:
    settings = load(tmp_path, MINIMAL)
    assert settings.binlog_server == settings.mysql


def test_a_source_without_a_host(tmp_path: Path) -> None:
    assert "binlog.source.host: is missing" in refusal(tmp_path, MINIMAL + "binlog: {source: {port: 3307}}\n")


def test_all_problems_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = MINIMAL.replace("user:", "usr:") + "log: {level: loud}\nlimits: {batch: 0}\n"
    lines = refusal(tmp_path, text, CDC_OUTBOX_NAM="x").splitlines()
    assert lines[0] == "5 settings are wrong:"
    assert "CDC_OUTBOX_NAM" in lines[1]
    assert [line.split(":")[1] for line in lines[2:6]] == ["2", "3", "8", "9"]


def test_the_file_itself(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="does not exist"):
        load_settings(tmp_path / "none.yaml", {})
    with pytest.raises(Refused, match="cannot be read"):
        load_settings(tmp_path, {})
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(Refused, match="not a UTF-8 text file"):
        load_settings(tmp_path / "binary.yaml", {})
    assert "name: is missing" in refusal(tmp_path, "")
    assert "must hold settings" in refusal(tmp_path, "- a\n")
    assert "nested too deeply" in refusal(tmp_path, "a: " + "[" * 5000)
    assert "second document" in refusal(tmp_path, MINIMAL + "---\na: 1\n")
    assert "contains itself" in refusal(tmp_path, MINIMAL + "log: &x {level: *x}\n")


# --- secrets ----------------------------------------------------------------------------------------------


def test_a_secret_is_in_no_repr(tmp_path: Path) -> None:
    text = MINIMAL + f"  client: confluent\n  options: {{sasl.password: {SECRET}}}\n"
    settings = load(tmp_path, text)
    assert settings.mysql.password.get_secret_value() == SECRET
    assert settings.kafka.options == {"sasl.password": SECRET}
    assert SECRET not in f"{settings!r} {settings} {settings.kafka!r} {settings.model_dump_json(exclude={'kafka'})}"


@pytest.mark.parametrize(
    "line",
    [
        f"password: [{SECRET}]",
        f"password: {{{SECRET}: 1}}",
        f"password: *{SECRET}",
        f"password: !{SECRET}",
        f"password: &{SECRET}",
        f"password: !{SECRET}!x y",
        f"password: '{SECRET}",
        f'password: "{SECRET}',
        f"password: {SECRET}: {SECRET}",
        f"password:{SECRET}",
        f"password: @{SECRET}",
        f"password: %{SECRET}",
        f"password: file:/no/such/file/but-{'x'}",
        f"tls: {SECRET}",
        f"port: [{SECRET}]",
    ],
)
def test_a_secret_is_in_no_message(tmp_path: Path, line: str) -> None:
    refusal(tmp_path, MINIMAL.replace(f"password: {SECRET}", line))


def test_the_value_of_a_variable_is_in_no_message(tmp_path: Path) -> None:
    message = refusal(tmp_path, MINIMAL + "limits: {batch: '${PW}'}\nlog: {level: 'x${PW}'}\n", PW=SECRET)
    assert "limits.batch: found '${PW}'; must be a whole number" in message


def test_variables(tmp_path: Path) -> None:
    text = MINIMAL.replace(SECRET, '"a${PW}b$${x}"').replace("localhost:9092", '"${HOST}:${PORT}"')
    settings = load(tmp_path, text, PW="${HOST}", HOST="k", PORT="1")
    assert settings.mysql.password.get_secret_value() == "a${HOST}b${x}"
    assert settings.kafka.bootstrap_servers == "k:1"


def test_a_number_may_come_from_a_variable(tmp_path: Path) -> None:
    text = MINIMAL.replace("user: relay", 'user: relay\n  port: "${MYSQL_PORT}"')
    assert load(tmp_path, text, MYSQL_PORT="3307").mysql.port == 3307


def test_an_unset_variable_is_named(tmp_path: Path) -> None:
    text = MINIMAL.replace(SECRET, '"${RELAY_PASSWORD}"')
    message = refusal(tmp_path, text)
    assert "relay.yaml:4: mysql.password: the environment variable RELAY_PASSWORD is not set" in message
    assert message.count("mysql.password") == 1
    assert load(tmp_path, text, CDC_OUTBOX_MYSQL__PASSWORD="x").mysql.password.get_secret_value() == "x"
    assert "must be followed by" in refusal(tmp_path, MINIMAL.replace(SECRET, '"${a-b}"'))


@pytest.mark.parametrize(("content", "password"), [("pw\n", "pw"), ("pw\n\n", "pw\n"), ("pw", "pw"), ("pw\r\n", "pw")])
def test_a_secret_from_a_file(tmp_path: Path, content: str, password: str) -> None:
    (tmp_path / "pw").write_bytes(content.encode())
    text = MINIMAL.replace(SECRET, '"file:${DIR}/pw"')
    assert load(tmp_path, text, DIR=str(tmp_path)).mysql.password.get_secret_value() == password
    text = MINIMAL.replace(SECRET, "x")
    settings = load(tmp_path, text, CDC_OUTBOX_MYSQL__PASSWORD=f"file:{tmp_path}/pw")
    assert settings.mysql.password.get_secret_value() == password


def test_an_unreadable_secret_file_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, MINIMAL.replace(SECRET, "file:/no/such"))
    assert "mysql.password: /no/such cannot be read: No such file or directory" in message


# --- environment ------------------------------------------------------------------------------------------


def test_the_environment_lies_over_the_file(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        MINIMAL,
        CDC_OUTBOX_NAME="other",
        CDC_OUTBOX_MYSQL__PORT="3310",
        CDC_OUTBOX_MYSQL__PASSWORD="pass${NOT}",
        CDC_OUTBOX_MYSQL__TLS__MODE="required",
        CDC_OUTBOX_MYSQL__SERVER_ID="null",
        CDC_OUTBOX_OUTBOX__TABLES="a, b",
        CDC_OUTBOX_RETRY__WAITS="[1s, 2s]",
        CDC_OUTBOX_KAFKA__TOPIC="t.{event_type}",
        CDC_OUTBOX_KAFKA__TOPIC_MAP="{a/b: ab}",
        CDC_OUTBOX_LIMITS="{batch: 9}",
        CDC_OUTBOX_LIMITS__MAX_IN_FLIGHT="8",
        CDC_OUTBOX_HTTP="null",
    )
    assert settings.name == "other"
    assert settings.mysql.port == 3310
    assert settings.mysql.password.get_secret_value() == "pass${NOT}"
    assert settings.mysql.tls.mode == "required"
    assert settings.outbox.tables == ["a", "b"]
    assert settings.retry.waits == [1, 2]
    assert settings.kafka.topic == "t.{event_type}"
    assert settings.kafka.topic_map == {"a/b": "ab"}
    assert (settings.limits.batch, settings.limits.max_in_flight) == (9, 8)
    assert settings.http is None


def test_the_environment_alone_is_enough() -> None:
    environ = {
        "CDC_OUTBOX_NAME": "x",
        "CDC_OUTBOX_MYSQL__USER": "u",
        "CDC_OUTBOX_MYSQL__PASSWORD": "",
        "CDC_OUTBOX_MYSQL__DATABASE": "d",
        "CDC_OUTBOX_KAFKA__BOOTSTRAP_SERVERS": "b:1",
        "CDC_OUTBOX_HTTP__LISTEN": "0.0.0.0:0",
    }
    assert load_settings(None, environ).mysql.database == "d"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CDC_OUTBOX_CONFIG", "x.yaml"),
        ("CDC_OUTBOX_PURE", "1"),
        ("CDC_OUTBOX_TEST_KILL_AT", "settle"),
        ("CDC_OUTBOX_SERVICE_HOST", "10.0.0.1"),
        ("CDC_OUTBOX_SERVICE_PORT", "9187"),
        ("CDC_OUTBOX_SERVICE_PORT_METRICS", "9187"),
        ("CDC_OUTBOX_PORT", "tcp://10.0.0.1:9187"),
        ("CDC_OUTBOX_PORT_9187_TCP", "tcp://10.0.0.1:9187"),
        ("CDC_OUTBOX_PORT_9187_TCP_ADDR", "10.0.0.1"),
        ("CDC_OUTBOX_PORT_9187_TCP_PROTO", "tcp"),
        ("CDC_OUTBOX_MYSQL_PORT", "tcp://10.0.0.2:3306"),
        ("CDC_OUTBOX_MYSQL_SERVICE_HOST", "10.0.0.2"),
        ("CDC_OUTBOX_MYSQL_PORT_3306_TCP_PORT", "3306"),
        ("CDC_OUTBOXES", "not ours"),
    ],
)
def test_names_that_are_no_settings_are_ignored(tmp_path: Path, name: str, value: str) -> None:
    assert load(tmp_path, MINIMAL, **{name: value}) == load(tmp_path, MINIMAL)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CDC_OUTBOX_KAFKA_TOPIC", "CDC_OUTBOX_KAFKA__TOPIC"),
        ("CDC_OUTBOX_MYSQL_PORT", "CDC_OUTBOX_MYSQL__PORT"),
        ("CDC_OUTBOX_KAFKA__TOPCI", "CDC_OUTBOX_KAFKA__TOPIC"),
    ],
)
def test_other_names_are_refused_with_the_nearest(tmp_path: Path, name: str, meant: str) -> None:
    message = refusal(tmp_path, MINIMAL, **{name: SECRET})
    assert f"environment variable {name}: no such setting; did you mean {meant}?" in message


def test_a_wrong_value_names_its_variable(tmp_path: Path) -> None:
    message = refusal(tmp_path, MINIMAL, CDC_OUTBOX_MYSQL__PORT="many", CDC_OUTBOX_LIMITS="{")
    assert "environment variable CDC_OUTBOX_MYSQL__PORT: mysql.port: found 'many'; must be a whole" in message
    assert "environment variable CDC_OUTBOX_LIMITS: limits: is not valid YAML" in message


# --- files that are made from the models --------------------------------------------------------------------


def leaves(node: Any, path: tuple[str | int, ...] = ()) -> set[str]:
    if isinstance(node, dict) and node:
        return set().union(*(leaves(value, (*path, key)) for key, value in node.items()))
    return {dotted(path)}


def test_the_example_has_every_key_at_its_default() -> None:
    file = ROOT / "config" / "cdc-outbox.example.yaml"
    settings = load_settings(file, {"RELAY_PASSWORD": "x"})
    written = yaml.safe_load(file.read_text("utf-8"))
    given = {"name": written["name"], "kafka": {"bootstrap_servers": written["kafka"]["bootstrap_servers"]}}
    given["mysql"] = {key: written["mysql"][key] for key in ("user", "database")} | {"password": "x"}
    assert settings == Settings.model_validate(given)
    inside = {"kafka.create_topics.partitions", "kafka.create_topics.replication_factor"}
    keys = {dotted(path) for path, kind in setting_kinds(Settings).items() if kind != "section"}
    inside |= {key for key in keys if key.startswith("binlog.source.")}
    assert leaves(written) - {"kafka.create_topics", "binlog.source"} == keys - inside


def test_the_json_schema_is_current() -> None:
    file = ROOT / "config" / "cdc-outbox.schema.json"
    assert file.read_text("utf-8") == schema_text(), (
        "run: python -m cdc_outbox.config_schema > config/cdc-outbox.schema.json"
    )


def test_the_json_schema_completes_every_key() -> None:
    schema = json.loads(schema_text())

    def keys(node: dict[str, Any], path: tuple[str, ...] = ()) -> set[str]:
        found = set()
        for name, inner in node.get("properties", {}).items():
            references = [one["$ref"] for one in [inner, *inner.get("anyOf", [])] if "$ref" in one]
            for reference in references:
                found |= keys(schema["$defs"][reference.rpartition("/")[2]], (*path, name))
            assert inner.get("description"), name
            if not references:
                found.add(".".join((*path, name)))
        assert node.get("additionalProperties") is False
        return found

    assert keys(schema) == {dotted(path) for path, kind in setting_kinds(Settings).items() if kind != "section"}
