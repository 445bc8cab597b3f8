"""What a relay on this host says of itself through its own /metrics; no answer is no error."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from cdc_outbox.config import Settings

TIMEOUT = 0.3
"""Seconds: it is on this host or not there."""

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]"}


@dataclass(frozen=True)
class Live:
    """A leader's own figures, fresher than the database's. lag: seconds; holds: reasons, none while events flow.

    decoder: compiled or pure; None of a version that did not say yet.
    """

    in_flight: int
    blocked_aggregates: int
    lag: float
    holds: list[str]
    decoder: str | None


def ask_leader(settings: Settings) -> Live | None:
    """The figures of the relay of this name that leads and listens where the settings say; None without one."""
    if settings.http is None:
        return None
    host, _, port = settings.http.listen.rpartition(":")
    address = f"http://{_ANYWHERE.get(host, host)}:{port}/metrics"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would not lead to this host
    try:
        with opener.open(address, timeout=TIMEOUT) as answer:
            figures = list(_samples(answer.read().decode(), settings.name))
    except (OSError, ValueError, http.client.HTTPException):  # nobody there, or somebody else
        return None
    one = {name: value for name, _, value in figures}
    if one.get("cdc_outbox_leader") != 1:
        return None
    return Live(
        in_flight=int(one.get("cdc_outbox_in_flight", 0)),
        blocked_aggregates=int(one.get("cdc_outbox_blocked_aggregates", 0)),
        lag=one.get("cdc_outbox_lag_seconds", 0.0),
        holds=[labels["reason"] for name, labels, value in figures if name == "cdc_outbox_hold" and value],
        decoder=next((labels.get("decoder") for name, labels, _ in figures if name == "cdc_outbox_build_info"), None),
    )


def _samples(text: str, relay: str) -> Iterator[tuple[str, dict[str, str], float]]:
    families: Any = text_string_to_metric_families(text)
    for family in families:
        for sample in family.samples:
            if sample.labels.get("relay") == relay:
                yield sample.name, sample.labels, sample.value
