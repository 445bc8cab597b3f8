"""A broker that its clients reach by a proxy only, beside a listener for the test itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, free_port
from tests.harness.proxy import Proxy


@dataclass(frozen=True)
class KafkaByProxy:
    """endpoint: the test's own way. proxy: the relay's."""

    endpoint: KafkaEndpoint
    proxy: Proxy

    @property
    def bootstrap(self) -> str:
        return f"{self.proxy.host}:{self.proxy.port}"


@contextmanager
def kafka_by_proxy(protocol: str = "PLAINTEXT", **options: str) -> Iterator[KafkaByProxy]:
    """Whoever comes by the proxy is told to come back by it. options: further ones of its listener, `_` for dots."""
    port = free_port()
    with Proxy("127.0.0.1", port) as proxy:
        server = providers.make_kafka(
            {
                "listeners": f"OUTER://127.0.0.1:{port}",
                "listener.security.protocol.map": f"OUTER:{protocol}",
                "advertised.listeners": f"OUTER://{proxy.host}:{proxy.port}",
                **{f"listener.name.outer.{name.replace('_', '.')}": value for name, value in options.items()},
            },
            print,
        )
        try:
            yield KafkaByProxy(server.endpoint, proxy)
        finally:
            server.remove()
