"""Raw options of the client libraries: which of them are ours alone, and which of their values must never be shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cdc_outbox.errors import Refused
from cdc_outbox.kafka.outcomes import is_untrusted

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings

SILENCE_MS = 10_000
"""How long a broker may owe an answer until its connection counts as lost. The libraries would wait for 30 and 60 s; a
frozen broker's partitions are given to others after 9 s."""

GONE_MS = 5_000
"""How long the brokers may not know a topic that they knew until it counts as deleted."""

IDLE_MS = 180_000
"""After this a connection without traffic is closed: later a firewall on the way may have forgotten it (after 4 minutes
the strictest), and nobody would tell."""

_SECRET = re.compile(r"passw|secret|token|jaas|\.pem$|credential", re.IGNORECASE)


def check_options(settings: KafkaSettings, ours: frozenset[str]) -> None:
    """Raises Refused for an option that would break what the relay promises (acknowledgements, order, no loss)."""
    for name in settings.options:
        if name in ours:
            raise Refused(
                f"kafka.options.{name} cannot be set: the relay sets it itself, so that nothing is lost or reordered",
                hint=f"remove {name} from kafka.options",
            )


def refused_options(settings: KafkaSettings, error: Exception) -> Refused:
    """What a client library says against its configuration."""
    return Refused(
        f"kafka: the client library does not accept its settings: {without_secrets(str(error), settings)}",
        hint="check kafka.options, kafka.security and kafka.compression",
        reason="kafka",
    )


def refused_login(settings: KafkaSettings, text: str) -> Refused:
    """Who we say we are is not accepted, or who the broker says it is."""
    if is_untrusted(text):
        return Refused(
            f"Kafka at {settings.bootstrap_servers} does not prove who it is: {without_secrets(text, settings)}",
            hint="kafka: {security: {ca: FILE}}: the authority that signed the brokers' certificates; the names in them"
            " must be those of kafka.bootstrap_servers and of advertised.listeners",
            reason="kafka",
        )
    user = settings.security.username
    return Refused(
        f"Kafka at {settings.bootstrap_servers} refused the login{f' of {user!r}' if user else ''}: "
        + without_secrets(text, settings),
        hint="check kafka.security: sasl_mechanism, username and password",
        reason="kafka",
    )


def without_secrets(text: str, settings: KafkaSettings) -> str:
    """The text with passwords and tokens of the settings blotted out."""
    secrets = [str(value) for name, value in settings.options.items() if _SECRET.search(name)]
    if settings.security.password is not None:
        secrets.append(settings.security.password.get_secret_value())
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text
