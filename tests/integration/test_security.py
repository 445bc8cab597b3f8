"""TLS, client certificates and SASL against real servers, with both Kafka clients; and what a refusal says."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its way of exporting
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from cdc_outbox.config import KafkaSettings, MySQLSettings, Settings
from cdc_outbox.errors import CdcOutboxError, Hold, Refused
from cdc_outbox.kafka.publisher import Delivery, Record, describe_broker, make_publisher
from cdc_outbox.mysql.preflight import examine_mysql
from cdc_outbox.mysql.session import Session
from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import MySQLEndpoint, free_port
from tests.harness.kafka import read_topic
from tests.harness.world import World
from tests.integration.certificates import Authority, Pair

# kafka-python leaves a socket whose handshake failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

CLIENTS = pytest.mark.parametrize("client", ["confluent", "kafka-python"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Nobody's authority."""
    return Authority(tmp_path_factory.mktemp("strange"), "stranger")


@pytest.fixture(scope="module")
def relay(authority: Authority) -> Pair:
    return authority.client("relay")


# -- MySQL ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded_mysql(authority: Authority) -> Iterator[MySQLEndpoint]:
    """Encrypted connections only; its certificate is for the address 127.0.0.1."""
    pair = authority.server("127.0.0.1")
    server = providers.make_mysql(
        {"ssl_ca": authority.ca, "ssl_cert": pair.cert, "ssl_key": pair.key, "require_secure_transport": "ON"}, print
    )
    yield server.endpoint
    server.remove()


@pytest.fixture(scope="module")
def execute(guarded_mysql: MySQLEndpoint, authority: Authority) -> Iterator[Callable[[str], None]]:
    connection = pymysql.connect(
        host=guarded_mysql.host, port=guarded_mysql.port, user="root", ssl_ca=authority.ca, autocommit=True
    )

    def run(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    with connection:
        run("CREATE DATABASE shop CHARACTER SET utf8mb4")
        yield run


def mysql(server: MySQLEndpoint, **values: object) -> MySQLSettings:
    given = {"host": server.host, "port": server.port, "user": "root", "password": "", "database": "shop", **values}
    return MySQLSettings.model_validate(given)


def found(server: MySQLEndpoint, **values: object) -> tuple[str, str]:
    """The first finding that is an error, as (check, what was found)."""
    settings = Settings.model_validate(
        {"name": "x", "mysql": mysql(server, **values).model_dump(), "kafka": {"bootstrap_servers": "k:1"}}
    )
    return next((one.check, one.found) for one in examine_mysql(settings) if one.level == "error")


def cipher(settings: MySQLSettings) -> str:
    session = Session(settings, lifetime=10)
    try:
        row = session.row("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        assert row is not None
        return str(row[1])
    finally:
        session.close()


@pytest.mark.usefixtures("execute")
@pytest.mark.parametrize("mode", ["preferred", "required", "verify_ca", "verify_identity"])
def test_mysql_by_tls(guarded_mysql: MySQLEndpoint, authority: Authority, mode: str) -> None:
    ca = authority.ca if mode.startswith("verify") else None
    assert cipher(mysql(guarded_mysql, tls={"mode": mode, "ca": ca})) != ""


@pytest.mark.usefixtures("execute")
def test_a_mysql_that_cannot_show_who_it_is_is_refused(
    guarded_mysql: MySQLEndpoint, authority: Authority, stranger: Authority
) -> None:
    for mode in ("verify_ca", "verify_identity"):
        check, text = found(guarded_mysql, tls={"mode": mode, "ca": stranger.ca})
        assert check == "mysql-tls" and f"mysql.tls.mode = {mode}" in text and "verify failed" in text
    # The certificate is for 127.0.0.1; the same server has another name, too.
    named = {"host": "localhost", "tls": {"mode": "verify_identity", "ca": authority.ca}}
    check, text = found(guarded_mysql, **named)
    assert check == "mysql-tls" and "localhost" in text
    assert cipher(mysql(guarded_mysql, host="localhost", tls={"mode": "verify_ca", "ca": authority.ca})) != ""


@pytest.mark.usefixtures("execute")
def test_a_mysql_that_takes_encrypted_connections_only_says_so(guarded_mysql: MySQLEndpoint) -> None:
    check, text = found(guarded_mysql, tls={"mode": "disabled"})
    assert check == "mysql-tls" and "secure" in text


def test_mysql_by_client_certificate(
    guarded_mysql: MySQLEndpoint, execute: Callable[[str], None], authority: Authority, relay: Pair
) -> None:
    execute("CREATE USER guarded IDENTIFIED BY 'secret' REQUIRE X509")
    execute("GRANT ALL ON shop.* TO guarded")
    account = {"user": "guarded", "password": "secret"}
    check, text = found(guarded_mysql, **account, tls={"mode": "required"})
    assert check == "mysql-credentials" and "guarded" in text and "secret" not in text
    tls = {"mode": "verify_identity", "ca": authority.ca, "cert": relay.cert, "key": relay.key}
    assert cipher(mysql(guarded_mysql, **account, tls=tls)) != ""


# -- Kafka ------------------------------------------------------------------------------------------------------


class GuardedKafka:
    """A broker with a listener for each way to be sure of a client."""

    def __init__(self, authority: Authority) -> None:
        pair = authority.server("localhost", "127.0.0.1")
        names = ("TLS", "MUTUAL", "SASL", "BEARER")
        self._ports = {name: free_port() for name in names}
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        options: dict[str, str | int] = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
            "listener.security.protocol.map": "TLS:SSL,MUTUAL:SSL,SASL:SASL_SSL,BEARER:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pair.both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority.ca,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl.plain.sasl.jaas.config": f'{plain} user_relay="secret";',
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{scram};",
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{scram};",
            "listener.name.bearer.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.bearer.oauthbearer.sasl.jaas.config": f'{bearer} unsecuredLoginStringClaim_sub="broker";',
        }
        self._server = providers.make_kafka(options, print)
        self.bootstrap = self._server.endpoint.bootstrap
        self._add_scram_users()

    def _add_scram_users(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            user = UserScramCredentialUpsertion("relay", ScramCredentialInfo(mechanism, 4096), b"secret")
            for done in admin.alter_user_scram_credentials([user]).values():
                done.result(30)

    def listener(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"

    def remove(self) -> None:
        self._server.remove()


@pytest.fixture(scope="module")
def guarded_kafka(authority: Authority) -> Iterator[GuardedKafka]:
    broker = GuardedKafka(authority)
    yield broker
    broker.remove()


def kafka(client: str, bootstrap: str, **security: object) -> KafkaSettings:
    given = {"bootstrap_servers": bootstrap, "client": client, "security": security}
    return KafkaSettings.model_validate(given)


def publish(settings: KafkaSettings, bootstrap: str) -> None:
    """One record by the listener of the settings, read back by the open one; and `doctor`'s look at the cluster."""
    topic = f"guarded-{time.time_ns()}"
    arrived = threading.Event()
    deliveries: list[Delivery] = []

    def deliver(batch: list[Delivery]) -> None:
        deliveries.extend(batch)
        arrived.set()

    publisher = make_publisher(settings, deliver)
    try:
        record = Record(topic, b"k", b"v", [], int(time.time() * 1000), "token")
        assert publisher.refusal(record) is None
        publisher.send([record])
        assert arrived.wait(30)
    finally:
        assert publisher.close(10)
    assert [(one.token, one.error) for one in deliveries] == [("token", None)]
    assert [one.value for one in read_topic(bootstrap, topic)] == [b"v"]
    assert describe_broker(settings).brokers


def refusal(settings: KafkaSettings) -> CdcOutboxError:
    with pytest.raises(CdcOutboxError) as raised:
        make_publisher(settings, lambda _: None).close(10)
    with pytest.raises(type(raised.value)):
        describe_broker(settings)
    assert "secret" not in str(raised.value)
    return raised.value


@CLIENTS
def test_kafka_by_tls(guarded_kafka: GuardedKafka, authority: Authority, client: str) -> None:
    settings = kafka(client, guarded_kafka.listener("TLS"), protocol="SSL", ca=authority.ca)
    publish(settings, guarded_kafka.bootstrap)


@CLIENTS
def test_a_broker_that_cannot_show_who_it_is_gets_nothing(
    guarded_kafka: GuardedKafka, stranger: Authority, client: str
) -> None:
    error = refusal(kafka(client, guarded_kafka.listener("TLS"), protocol="SSL", ca=stranger.ca))
    assert isinstance(error, Refused), error
    assert "does not prove who it is" in error.message and "ca: FILE" in (error.hint or "")


@CLIENTS
def test_kafka_by_client_certificate(
    guarded_kafka: GuardedKafka, authority: Authority, relay: Pair, client: str
) -> None:
    listener = guarded_kafka.listener("MUTUAL")
    certificate = {"cert": relay.cert, "key": relay.key}
    publish(kafka(client, listener, protocol="SSL", ca=authority.ca, **certificate), guarded_kafka.bootstrap)
    with pytest.raises(CdcOutboxError):
        make_publisher(kafka(client, listener, protocol="SSL", ca=authority.ca), lambda _: None).close(10)


@CLIENTS
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_by_password(guarded_kafka: GuardedKafka, authority: Authority, client: str, mechanism: str) -> None:
    listener = guarded_kafka.listener("SASL")
    login = {"protocol": "SASL_SSL", "ca": authority.ca, "sasl_mechanism": mechanism, "username": "relay"}
    publish(kafka(client, listener, **login, password="secret"), guarded_kafka.bootstrap)
    error = refusal(kafka(client, listener, **login, password="not-secret"))
    assert isinstance(error, Refused), error
    assert "kafka.security" in (error.hint or "")


class TokenEndpoint:
    """Gives unsigned tokens, which the broker's own validator for tests accepts, to a client that knows the secret."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.life = 3600

    def answer(self, authorization: str | None, body: str) -> tuple[int, dict[str, Any]]:
        self.asked.append(body)
        if authorization != "Basic " + base64.b64encode(b"relay:secret").decode():
            return 401, {"error": "invalid_client"}
        now = int(time.time())
        claims = {"sub": "relay", "iat": now, "exp": now + self.life, "scope": "kafka"}
        parts = (base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in ({"alg": "none"}, claims))
        return 200, {"access_token": ".".join(part.rstrip("=") for part in parts) + ".", "expires_in": self.life}


@contextmanager
def serving(endpoint: TokenEndpoint) -> Iterator[str]:
    class Asked(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            status, answer = endpoint.answer(self.headers["authorization"], body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()


@CLIENTS
def test_kafka_by_token(guarded_kafka: GuardedKafka, authority: Authority, client: str) -> None:
    endpoint = TokenEndpoint()
    login = {"protocol": "SASL_SSL", "ca": authority.ca, "sasl_mechanism": "OAUTHBEARER", "username": "relay"}
    listener = guarded_kafka.listener("BEARER")
    with serving(endpoint) as url:
        settings = kafka(client, listener, **login, password="secret", token_url=url, scope="kafka")
        publish(settings, guarded_kafka.bootstrap)
        assert set(endpoint.asked) == {"grant_type=client_credentials&scope=kafka"}
        wrong = refusal(kafka(client, listener, **login, password="not-secret", token_url=url))
        assert isinstance(wrong, Refused), wrong
        assert "answered 401" in wrong.message
    away = refusal(kafka(client, listener, **login, password="secret", token_url=url))
    assert isinstance(away, Hold), away
    assert "token endpoint" in away.message and "does not answer" in away.message


# -- all of it together -----------------------------------------------------------------------------------------


@pytest.fixture
def certificates(authority: Authority, relay: Pair) -> dict[str, str]:
    return {"ca": authority.ca, "cert": relay.cert, "key": relay.key}


@pytest.fixture
def guarded_world(make_world: Callable[..., World], guarded_mysql: MySQLEndpoint) -> World:
    return make_world(mysql=guarded_mysql, init=False)


@CLIENTS
def test_a_relay_by_certificates_on_both_sides(
    guarded_world: World, guarded_kafka: GuardedKafka, certificates: dict[str, str], client: str
) -> None:
    """The binlog connection too: everything that the relay opens goes by the settings."""
    config = guarded_world.config(
        mysql={"tls": {"mode": "verify_identity", **certificates}},
        kafka={
            "bootstrap_servers": guarded_kafka.listener("MUTUAL"),
            "client": client,
            "security": {"protocol": "SSL", **certificates},
        },
    )
    guarded_world.init(config)
    process = guarded_world.start(config)
    event_id = guarded_world.insert("a1")
    guarded_world.wait_sent(event_id)
    assert process.stop() == 0
    assert [one.event_id for one in read_topic(guarded_kafka.bootstrap, guarded_world.topic)] == [event_id]
