"""A MySQL and a Kafka together, found or started at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint
from cdc_outbox.testing.services.providers import (
    KAFKA_VARIABLE,
    MYSQL_VARIABLE,
    Found,
    NoService,
    find_kafka,
    find_mysql,
)
from cdc_outbox.testing.services.server import EndpointT
from cdc_outbox.testing.services.words import Say


@dataclass(frozen=True)
class Pair:
    mysql: Found[MySQLEndpoint]
    kafka: Found[KafkaEndpoint]

    @property
    def environ(self) -> dict[str, str]:
        """The variables that make tests and the demo use this pair."""
        return {MYSQL_VARIABLE: self.mysql.endpoint.url, KAFKA_VARIABLE: self.kafka.endpoint.bootstrap}

    def remove(self) -> None:
        """Stop what is ours of it."""
        self.mysql.remove()
        self.kafka.remove()


def start_pair(say: Say) -> Pair:
    """Find or start both. Raises NoService with the page of each one that cannot be had."""
    mysql, kafka = _Search(find_mysql, say), _Search(find_kafka, say)
    errors = [error for error in (mysql.wait(), kafka.wait()) if error is not None]
    if mysql.found is not None and kafka.found is not None:
        return Pair(mysql.found, kafka.found)
    for search in (mysql, kafka):
        if search.found is not None:
            search.found.remove()
    for error in errors:
        if not isinstance(error, NoService):
            raise error
    raise NoService("\n\n".join(str(error) for error in errors))


class _Search(Generic[EndpointT]):
    """One search, on a thread that does not keep the program from ending: Ctrl-C waits for no download."""

    def __init__(self, find: Callable[[Say], Found[EndpointT]], say: Say) -> None:
        self.found: Found[EndpointT] | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(find, say), daemon=True)
        self._thread.start()

    def wait(self) -> Exception | None:
        self._thread.join()
        return self._error

    def _run(self, find: Callable[[Say], Found[EndpointT]], say: Say) -> None:
        try:
            self.found = find(say)
        except Exception as error:
            self._error = error
