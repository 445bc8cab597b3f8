"""Tokens: asked for once, replaced in time, refused or unavailable; and the secret goes nowhere else."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator

import pytest

from cdc_outbox.config import KafkaSettings, SecuritySettings
from cdc_outbox.errors import Hold, Refused
from cdc_outbox.kafka.oauth import TokenRefused, TokenSource, TokenUnavailable, first_token


class Endpoint(http.server.ThreadingHTTPServer):
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.status, self.body, self.location = 200, b"", ""
        self.asked: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), Asked)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"

    def source(self, **security: object) -> TokenSource:
        return TokenSource(settings(self.url, **security).security)

    def give(self, **answer: object) -> None:
        self.status, self.body = 200, json.dumps(answer).encode()


class Asked(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Endpoint)
        self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append((self.path, self.headers["authorization"]))
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("location", self.server.location)
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def settings(url: str, **security: object) -> KafkaSettings:
    bearer = SecuritySettings.model_validate(
        {
            "protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "username": "relay",
            "password": "s3cret:/",
            "token_url": url,
            **security,
        }
    )
    return KafkaSettings(bootstrap_servers="k:1", security=bearer)


def test_a_token_is_kept_and_replaced_before_it_expires(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    source = endpoint.source()
    endpoint.give(access_token="one", expires_in=100)
    assert source.token() == ("one", 1_000_100.0)
    endpoint.give(access_token="two", expires_in=100)
    now += 79
    assert source.token().value == "one"
    now += 2
    assert source.token() == ("two", 1_000_181.0)
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_client_that_is_not_accepted(endpoint: Endpoint, status: int) -> None:
    endpoint.status = status
    with pytest.raises(TokenRefused, match=f"answered {status}"):
        endpoint.source().token()
    with pytest.raises(Refused, match=f"answered {status}") as refused:
        first_token(settings(endpoint.url))
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(("status", "body"), [(500, b""), (200, b"<html>"), (200, b"{}"), (200, b"[]")])
def test_an_endpoint_that_is_not_well(endpoint: Endpoint, status: int, body: bytes) -> None:
    endpoint.status, endpoint.body = status, body
    with pytest.raises(TokenUnavailable, match="the token endpoint"):
        endpoint.source().token()
    with pytest.raises(Hold, match=r"kafka\.security\.token_url"):
        first_token(settings(endpoint.url))


def test_the_secret_follows_no_redirect(endpoint: Endpoint) -> None:
    endpoint.status, endpoint.location = 302, endpoint.url + "/elsewhere"
    with pytest.raises(TokenUnavailable, match="answered 302"):
        endpoint.source().token()
    assert [path for path, _ in endpoint.asked] == ["/token"]


def test_no_tokens_without_oauthbearer() -> None:
    assert first_token(KafkaSettings(bootstrap_servers="k:1")) is None
