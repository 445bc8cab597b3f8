"""cdc-outbox: the transactional outbox on MySQL, relayed to Kafka.

What an application uses is imported when it is first asked for, so that `import cdc_outbox` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_outbox.app.consumer import IdempotentConsumer as IdempotentConsumer
    from cdc_outbox.app.consumer_partitions import Received as Received
    from cdc_outbox.app.ids import Uuid7Ids as Uuid7Ids
    from cdc_outbox.app.ids import business_key as business_key
    from cdc_outbox.app.ids_snowflake import SnowflakeIds as SnowflakeIds
    from cdc_outbox.app.ids_worker import WorkerLease as WorkerLease
    from cdc_outbox.app.outbox import NewEvent as NewEvent
    from cdc_outbox.app.outbox import Outbox as Outbox

__version__ = "0.1.0"

_HOMES = {
    "Outbox": "cdc_outbox.app.outbox",
    "NewEvent": "cdc_outbox.app.outbox",
    "Uuid7Ids": "cdc_outbox.app.ids",
    "business_key": "cdc_outbox.app.ids",
    "SnowflakeIds": "cdc_outbox.app.ids_snowflake",
    "WorkerLease": "cdc_outbox.app.ids_worker",
    "IdempotentConsumer": "cdc_outbox.app.consumer",
    "Received": "cdc_outbox.app.consumer_partitions",
}
"""Public name -> the module that has it."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
