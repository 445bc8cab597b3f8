"""Records that the broker answers with an error that no outage explains: whose fault it is, and when that is clear.

Pure. Outlives the rebuilds that such errors cause; only the relay thread uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc_outbox.relay.in_flight import RowKey

TRIES = 3
"""Times that a record, sent alone, must meet such an error before the error is its own."""


@dataclass
class _Suspicion:
    partition: tuple[str, int]
    alone: int = 0
    others_pass: bool = False


class Suspects:
    """Whom to send alone. A partition is (topic, number)."""

    def __init__(self) -> None:
        self._by_key: dict[RowKey, _Suspicion] = {}

    def __contains__(self, key: RowKey) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def accuse(self, key: RowKey, partition: tuple[str, int], *, alone: bool) -> bool:
        """One more such answer to it. True: it is the record's fault, since others to its partition succeed."""
        suspicion = self._by_key.setdefault(key, _Suspicion(partition))
        suspicion.alone += alone
        if suspicion.alone < TRIES or not suspicion.others_pass:
            return False
        del self._by_key[key]
        return True

    def acknowledged(self, key: RowKey, partition: tuple[str, int]) -> None:
        """The broker took this record: it is cleared, and what else failed on its partition did not for the broker."""
        self._by_key.pop(key, None)
        for suspicion in self._by_key.values():
            if suspicion.partition == partition:
                suspicion.others_pass = True
