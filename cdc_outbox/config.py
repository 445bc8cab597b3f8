"""The settings: every key, its type, its default and what is impossible. Read once, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from cdc_outbox.config_environment import apply_environment, expand
from cdc_outbox.config_problems import complain, summary
from cdc_outbox.config_source import Source
from cdc_outbox.config_values import (
    NUMBER,
    Bytes,
    FileName,
    HostName,
    Option,
    Seconds,
    Text,
    TopicName,
    between,
    broker_list,
    host_and_port,
    http_url,
    impossible,
    time_zone_name,
    topic_template,
)
from cdc_outbox.config_yaml import read_file
from cdc_outbox.errors import Refused
from cdc_outbox.model import TableName


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_means_defaults(cls, value: object) -> object:
        return {} if value is None else value


class TlsSettings(_Section):
    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    """How the connection to MySQL is protected; `verify_identity` checks certificate and host name."""
    ca: FileName | None = None
    """File with the certificate authorities to trust; null: the system's."""
    cert: FileName | None = None
    """File with this client's certificate."""
    key: FileName | None = None
    """File with the key of `cert`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.cert is None) != (self.key is None):
            given, missing = ("cert", "key") if self.cert else ("key", "cert")
            raise impossible(given, f"needs {missing} beside it")
        if self.mode == "disabled" and (self.ca or self.cert):
            raise impossible("mode", "is disabled, but ca or cert is set")
        return self


class MySQLSettings(_Section):
    host: HostName = "127.0.0.1"
    """Host name or address of the primary."""
    port: Annotated[int, Field(ge=1, le=65535), NUMBER] = 3306
    """TCP port."""
    user: Text
    """The relay's own user; `cdc-outbox init --print` shows the grants it needs."""
    password: SecretStr
    """Password: `${VAR}` or `file:/path` keep it out of this file."""
    database: Annotated[str, Field(min_length=1, max_length=64)]
    """Database of the outbox tables and of cdc_outbox_checkpoint."""
    server_id: Annotated[int, Field(ge=1, le=2**32 - 1), NUMBER] | None = None
    """Replica id, unique among everything that reads this server's binlog; null: a random one for each process."""
    time_zone: Annotated[str, AfterValidator(time_zone_name)] | None = None
    """Time zone of the relay's sessions, in which next_retry_at is written; null: the server's."""
    tls: TlsSettings = TlsSettings()
    """TLS to MySQL."""


class SourceSettings(_Section):
    host: HostName
    """Host name or address of a replica of the primary; the name is looked up again for each connection."""
    port: Annotated[int, Field(ge=1, le=65535), NUMBER] | None = None
    """TCP port; null: `mysql.port`."""
    user: Text | None = None
    """The account that reads the binlog there; null: `mysql.user`."""
    password: SecretStr | None = None
    """Its password; null: `mysql.password`."""
    server_id: Annotated[int, Field(ge=1, le=2**32 - 1), NUMBER] | None = None
    """Replica id, unique among everything that reads that server's binlog; null: as `mysql.server_id` has it."""
    tls: TlsSettings | None = None
    """TLS to it; null: as to the primary."""


class ColumnSettings(_Section):
    key: Text = "aggregate_id"
    """Column that becomes the record's key."""
    topic: Text | None = None
    """Column that names the topic of each event; null: `kafka.topic`."""
    headers: dict[Text, Text] = {}
    """Further headers: header name to column name."""


class OutboxSettings(_Section):
    tables: Annotated[list[str], Field(min_length=1)] = ["outbox_event"]
    """Outbox tables, each `name` or `database.name`."""
    claim: Literal["leader", "row"] = "leader"
    """`leader`: the lock is the claim. `row`: each batch is claimed 0 → 1 before it is published."""
    rows: Literal["keep", "transient"] = "keep"
    """`keep`: rows stay, and their status is written. `transient`: the application deletes each as it inserts it."""
    ordering: Literal["aggregate", "strict", "none"] = "aggregate"
    """`aggregate`: a failed event's successors wait for it. `none`: nothing waits."""
    sending_timeout: Annotated[Seconds, between("1s", "7d")] | None = None
    """With `claim: row`: a row that stays at status 1 for so long is taken to be abandoned; null: 5m."""
    columns: ColumnSettings = ColumnSettings()
    """Columns that become key, topic and headers."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for one in self.tables:
            parts = one.split(".")
            if len(parts) > 2 or not all(0 < len(part) <= 64 and part.strip() == part for part in parts):
                raise impossible("tables", f"{one!r} must be a table's name or database.name")
        if self.transient and self.claim == "row":
            raise impossible("rows", "transient leaves no row to claim: claim must be leader")
        return self

    @property
    def transient(self) -> bool:
        """Only what failed has a row."""
        return self.rows == "transient"


class CreateTopicsSettings(_Section):
    partitions: Annotated[int, Field(ge=1, le=100_000), NUMBER]
    """Partitions of a topic that the relay creates."""
    replication_factor: Annotated[int, Field(ge=1, le=100), NUMBER]
    """Replicas of each partition."""


class SecuritySettings(_Section):
    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How brokers are spoken to."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    """SASL mechanism; any other goes through `kafka.options`."""
    username: Text | None = None
    """SASL user; with OAUTHBEARER the client's id."""
    password: SecretStr | None = None
    """SASL password, with OAUTHBEARER the client's secret: `${VAR}` or `file:/path`."""
    token_url: Annotated[str, AfterValidator(http_url)] | None = None
    """With OAUTHBEARER: where access tokens are had, by the client credentials grant."""
    scope: Text | None = None
    """With OAUTHBEARER: the scope asked for."""
    ca: FileName | None = None
    """File with the certificate authorities to trust; null: the system's."""
    cert: FileName | None = None
    """File with this client's certificate."""
    key: FileName | None = None
    """File with the key of `cert`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.cert is None) != (self.key is None):
            given, missing = ("cert", "key") if self.cert else ("key", "cert")
            raise impossible(given, f"needs {missing} beside it")
        if self.protocol in {"PLAINTEXT", "SASL_PLAINTEXT"} and (self.ca or self.cert):
            raise impossible("protocol", f"{self.protocol} uses no TLS, but ca or cert is set")
        sasl = {"sasl_mechanism": self.sasl_mechanism, "username": self.username, "password": self.password}
        given_sasl = [key for key, value in sasl.items() if value is not None]
        if given_sasl and not self.protocol.startswith("SASL"):
            raise impossible(given_sasl[0], f"is set, but protocol {self.protocol} uses no SASL")
        if given_sasl and len(given_sasl) < len(sasl):
            missing = next(key for key in sasl if key not in given_sasl)
            raise impossible(given_sasl[0], f"needs {missing} beside it")
        if self.sasl_mechanism == "OAUTHBEARER" and self.token_url is None:
            raise impossible("sasl_mechanism", "OAUTHBEARER needs token_url beside it")
        for_tokens = [name for name in ("token_url", "scope") if getattr(self, name) is not None]
        if for_tokens and self.sasl_mechanism != "OAUTHBEARER":
            raise impossible(for_tokens[0], "needs sasl_mechanism: OAUTHBEARER beside it")
        return self


class KafkaSettings(_Section):
    bootstrap_servers: Annotated[str, AfterValidator(broker_list)]
    """Brokers to begin with: `host:port,host:port`."""
    client: Literal["auto", "kafka-python", "confluent"] = "auto"
    """Client library; `auto`: confluent where it is installed."""
    topic: Annotated[str, AfterValidator(topic_template)] = "outbox.event.{aggregate_type}"
    """Topic of an event; `{aggregate_type}`, `{aggregate_id}` and `{event_type}` are filled in."""
    topic_map: dict[Text, TopicName] = {}
    """Topics of aggregate types that no topic name can hold: aggregate_type to topic."""
    create_topics: CreateTopicsSettings | None = None
    """Create topics that are missing; null leaves that to the broker."""
    format: Literal["plain", "cloudevents", "cloudevents-structured", "debezium"] = "plain"
    """`plain`: the value is the payload's text. `cloudevents`: binary mode. `debezium`: as its outbox event router."""
    dead_letter_topic: TopicName = "outbox.dead-letter"
    """Topic of events whose retries are used up."""
    timestamp_max_age: Annotated[Seconds, between("1s", "36500d")] | None = 86_400.0
    """Older events get the present time, and their own in the header `committed_at`; null: never."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """Compression of record batches."""
    linger: Annotated[Seconds, between("0s", "1m")] = 0.001
    """How long a record may wait for company in its batch."""
    batch_bytes: Annotated[Bytes, between("1B", "1GB")] = 256 * 1024
    """Largest record batch; keep it below the brokers' smallest max.message.bytes."""
    max_record_bytes: Annotated[Bytes, between("1kB", "1GB")] = 1024 * 1024
    """Largest single record; larger ones fail without being sent."""
    security: SecuritySettings = SecuritySettings()
    """TLS and authentication to Kafka."""
    options: Annotated[dict[Text, Option], Field(repr=False)] = {}
    """Raw options of the client library, over ours; needs `client` named."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.batch_bytes > self.max_record_bytes:
            raise impossible(
                "batch_bytes", f"{self.batch_bytes} is more than max_record_bytes, {self.max_record_bytes}"
            )
        if self.options and self.client == "auto":
            raise impossible("options", "need client named, kafka-python or confluent: their names differ")
        if self.security.protocol.startswith("SASL") and not (self.security.sasl_mechanism or self.options):
            raise impossible("security", f"{self.security.protocol} needs sasl_mechanism")
        if self.topic == self.dead_letter_topic or self.dead_letter_topic in self.topic_map.values():
            raise impossible("dead_letter_topic", "must not be a topic of events")
        return self


Wait = Annotated[Seconds, between("0s", "365d")]


class RetrySettings(_Section):
    waits: Annotated[list[Wait], Field(min_length=1)] = [
        10.0,
        60.0,
        600.0,
        3600.0,
    ]
    """Wait before retry 1, 2, 3 …; the last value repeats."""
    poll_interval: Annotated[Seconds, between("10ms", "1h")] = 1.0
    """How often an idle poller looks for due and missed rows."""
    jitter: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), NUMBER] = 0.1
    """Each wait is varied by up to this part of it, up or down."""


class BinlogSettings(_Section):
    on_purged: Literal["sweep", "stop"] = "sweep"
    """When the binlog behind the checkpoint is gone. `sweep`: find unsent rows by SQL. `stop`: exit 3."""
    checkpoint_store: Literal["mysql", "file"] = "mysql"
    """Where the position is kept; the fence is in MySQL either way."""
    checkpoint_file: Text | None = None
    """The file of `checkpoint_store: file`, on a disk of this host that survives restarts."""
    start: Literal["now", "earliest"] = "now"
    """Where the very first start reads from; rows already pending are published either way."""
    source: SourceSettings | None = None
    """A GTID replica to read the binlog from; statuses are written to the primary. null: the primary itself."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.checkpoint_store == "file") != (self.checkpoint_file is not None):
            if self.checkpoint_file is None:
                raise impossible("checkpoint_store", "file needs checkpoint_file beside it")
            raise impossible("checkpoint_file", "needs checkpoint_store: file beside it")
        return self


class LimitSettings(_Section):
    max_in_flight: Annotated[int, Field(ge=1, le=1_000_000), NUMBER] = 10_000
    """Events read and not yet settled."""
    max_in_flight_bytes: Annotated[Bytes, between("1B", "1024GiB")] = 64 * 1024 * 1024
    """Their bytes; a single larger event travels alone."""
    batch: Annotated[int, Field(ge=1, le=5000), NUMBER] = 2000
    """Rows settled by one SQL transaction."""
    max_rate: Annotated[float, Field(gt=0, le=1_000_000), NUMBER] | None = None
    """Events published a second at most, retries included; null: as fast as it goes."""
    shutdown_timeout: Annotated[Seconds, between("0s", "1h")] = 30.0
    """How long a stop waits for what is with Kafka."""


class HttpSettings(_Section):
    listen: Annotated[str, AfterValidator(host_and_port)] = "127.0.0.1:9187"
    """`host:port` of /healthz, /readyz and /metrics; 0.0.0.0 for all addresses, port 0 for any free one."""

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


class LogSettings(_Section):
    format: Literal["text", "json"] = "text"
    """`json`: one object a line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least important level that is written."""


class Settings(_Section):
    """All settings of one relay, as written in its YAML file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """The relay's name: lock, checkpoint row and metrics label. Copies of one relay share it."""
    mysql: MySQLSettings
    """The server that has the outbox tables."""
    outbox: OutboxSettings = OutboxSettings()
    """The tables and how their rows are used."""
    kafka: KafkaSettings
    """The brokers, the topics and the producer."""
    retry: RetrySettings = RetrySettings()
    """When failed events are tried again."""
    binlog: BinlogSettings = BinlogSettings()
    """Where reading starts and what happens when it cannot go on."""
    leadership_timeout: Annotated[Seconds, between("3s", "1h")] = 10.0
    """A leader that is silent for so long loses the lock."""
    limits: LimitSettings = LimitSettings()
    """Memory, batches and the time a stop may take."""
    http: HttpSettings | None = HttpSettings()
    """Health and metrics; null: none."""
    log: LogSettings = LogSettings()
    """The relay's log, written to standard error."""

    @property
    def binlog_server(self) -> MySQLSettings:
        """The server whose binlog is read: `binlog.source`, what it leaves out as in `mysql`."""
        source = self.binlog.source
        given = {} if source is None else {key: value for key, value in source if value is not None}
        return self.mysql.model_copy(update=given)

    @property
    def table_names(self) -> list[TableName]:
        """The outbox tables, each with its database."""
        return [
            TableName(database or self.mysql.database, name)
            for database, _, name in (one.rpartition(".") for one in self.outbox.tables)
        ]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = self.table_names
        twice = [str(one) for one in names if names.count(one) > 1]
        if twice:
            raise impossible("outbox", f"tables names {twice[0]} twice")
        if self.outbox.transient and self.binlog.on_purged != "stop":
            raise impossible(
                "outbox", "rows: transient needs binlog: {on_purged: stop}: a sweep finds no rows that were deleted"
            )
        return self


def load_settings(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Read the file (None: the environment alone), lay the environment over it and check everything.

    Raises Refused with every problem found: file and line or environment variable, the setting, what was
    found, the nearest right name. Secrets are never part of it.
    """
    source = read_file(path) if path is not None else Source(name="environment")
    apply_environment(source, Settings, environ)
    expand(source, Settings, environ)
    try:
        settings = Settings.model_validate(source.tree)
    except ValidationError as error:
        complain(source, error.errors(include_url=False), Settings)
    if source.problems:
        raise Refused(summary(source), hint="docs/reference.md lists every setting, its values and its default")
    return settings
