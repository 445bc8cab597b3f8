"""Access tokens for OAUTHBEARER by the client credentials grant, kept until shortly before they expire.

RFC 6749, section 4.4; the client's id and secret as HTTP basic authentication. Neither they nor a token are printed.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, NamedTuple

from cdc_outbox.errors import Hold
from cdc_outbox.kafka.options import refused_login

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings, SecuritySettings

TIMEOUT = 4.0
"""Seconds that the token endpoint gets to answer: it must leave the brokers some of their own five."""
_EARLY = 0.8
"""The part of its life after which a token is replaced."""
_LIFE = 300.0
"""Seconds, where the endpoint does not say."""
_MOST_BYTES = 1 << 20


class TokenRefused(Exception):
    """The endpoint does not accept the client: a setting to be put right."""


class TokenUnavailable(Exception):
    """No token now: the endpoint is away, or answers nonsense."""


class Token(NamedTuple):
    """expires_at: seconds since the epoch."""

    value: str
    expires_at: float


class TokenSource:
    """Usable from any thread; one asks, the others wait for what it gets."""

    def __init__(self, security: SecuritySettings) -> None:
        assert security.token_url is not None and security.password is not None
        self._url = security.token_url
        fields = {"grant_type": "client_credentials", **({"scope": security.scope} if security.scope else {})}
        self._body = urllib.parse.urlencode(fields).encode()
        pair = (urllib.parse.quote(part, safe="") for part in (security.username or "", _secret(security)))
        self._basic = base64.b64encode(":".join(pair).encode()).decode()
        context = ssl.create_default_context()
        if security.ca is not None:
            context.load_verify_locations(security.ca)
        self._open = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect()).open
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._replace_at = 0.0

    def token(self) -> Token:
        """A token that is good for a while. Raises TokenRefused or TokenUnavailable."""
        with self._lock:
            if self._token is None or time.time() >= self._replace_at:
                self._token, self._replace_at = self._fetch()
            return self._token

    def _fetch(self) -> tuple[Token, float]:
        headers = {
            "Authorization": f"Basic {self._basic}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        request = urllib.request.Request(self._url, self._body, headers)
        now = time.time()
        try:
            with self._open(request, timeout=TIMEOUT) as answer:
                found = json.loads(answer.read(_MOST_BYTES))
            value, life = str(found["access_token"]), float(found.get("expires_in", _LIFE))
        except urllib.error.HTTPError as error:
            with error:
                text = f"the token endpoint {self._url} answered {error.code} {error.reason}"
            raise (TokenRefused if error.code in {400, 401, 403} else TokenUnavailable)(text) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise TokenUnavailable(f"the token endpoint {self._url} does not answer: {reason}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TokenUnavailable(f"the token endpoint {self._url} gave no access_token") from None
        return Token(value, now + life), now + life * _EARLY


def first_token(settings: KafkaSettings) -> TokenSource | None:
    """The source of a client's tokens, which has one already; None where none are needed. Raises Hold or Refused."""
    if settings.security.token_url is None:
        return None
    source = TokenSource(settings.security)
    try:
        source.token()
    except TokenRefused as refused:
        raise refused_login(settings, str(refused)) from None
    except TokenUnavailable as unavailable:
        raise Hold(f"Kafka: {unavailable} (kafka.security.token_url)", reason="kafka") from None
    return source


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The client's secret goes to no other address than the one in the settings."""

    def redirect_request(self, *_: object) -> None:
        return None


def _secret(security: SecuritySettings) -> str:
    return "" if security.password is None else security.password.get_secret_value()
