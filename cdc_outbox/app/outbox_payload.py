"""A payload as JSON text that the server takes: dict, list, dataclass, pydantic model, or JSON text that is checked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from cdc_outbox.errors import EventRefused

MAX_DEPTH = 100
"""Levels that MySQL's JSON may have (error 3157 beyond)."""
MARIADB_DEPTH = 31
"""Levels that JSON may have in MariaDB 10.11, where it is text with the check JSON_VALID (error 4025 beyond)."""

_BROKEN_TEXT = "it holds half of a surrogate pair, which is no Unicode text"


def json_text(payload: object, max_bytes: int) -> str:
    """The payload as JSON text, spaced as MySQL prints it, so that its size is the size of the record's value.

    A str or bytes is taken as JSON text. datetime, date and time become ISO 8601, Decimal, UUID and Enum members their
    text or value. Raises EventRefused for what is no JSON, is larger than max_bytes or nested deeper than MySQL allows.
    """
    if payload is None:
        raise EventRefused("the payload is None", hint='for a JSON null pass the text "null"')
    given = _parsed(payload) if isinstance(payload, str | bytes | bytearray) else payload
    try:
        text = _encode(given)
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise EventRefused(f"the payload cannot be written: {_BROKEN_TEXT}") from None
    except RecursionError:
        raise EventRefused(f"the payload is nested too deeply: MySQL takes {MAX_DEPTH} levels") from None
    except (TypeError, ValueError) as error:
        raise EventRefused(f"the payload is not JSON: {error}") from error
    if size > max_bytes:
        raise EventRefused(
            f"the payload has {size:,} bytes as JSON, more than max_payload_bytes={max_bytes:,}",
            hint="Put the bulk elsewhere and its address into the event, or raise max_payload_bytes together with"
            " kafka.max_record_bytes of the relay and max.message.bytes of the topic",
        )
    if _text_deeper_than(text, MAX_DEPTH):
        raise EventRefused(f"the payload is nested too deeply: MySQL takes {MAX_DEPTH} levels")
    return text


def refuse_depth_of_mariadb(texts: Iterable[str]) -> None:
    """After error 4025, which names a constraint and no reason: raise EventRefused where a payload's depth is one.

    Not before the statement: later servers may take more, and so does a payload column without the check.
    """
    if any(_text_deeper_than(text, MARIADB_DEPTH) for text in texts):
        raise EventRefused(
            f"the payload is nested too deeply: MariaDB takes {MARIADB_DEPTH} levels; nothing was written",
            hint="Make it flatter, or write its inner part as a text that holds JSON. Your transaction is still open",
        )


def _parsed(text: str | bytes | bytearray) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise EventRefused(f"the payload is nested too deeply: MySQL takes {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise EventRefused(
            f"the payload is not JSON: {error}", hint="A str is taken as JSON text; json.dumps(…) makes it one"
        ) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _text_deeper_than(text: str, levels: int) -> bool:
    return text.count("{") + text.count("[") > levels and _deeper_than(json.loads(text), levels)


def _deeper_than(value: dict[str, Any] | list[Any], levels: int) -> bool:
    """Whether a dict or list holds more levels of them, itself counted."""
    if levels == 0:
        return True
    inner = value.values() if isinstance(value, dict) else value
    return any(isinstance(one, dict | list) and _deeper_than(one, levels - 1) for one in inner)


def _as_json(value: Any) -> Any:
    """What json cannot write itself, in a form that it can."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(
        f"a {type(value).__qualname__} cannot be written as JSON; make it a str, a number, a dict or a list"
    )


def _is_pydantic(kind: type) -> bool:
    """By its name alone, so that pydantic need not be imported."""
    return any(base.__module__ == "pydantic.main" for base in kind.__mro__)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_as_json).encode
