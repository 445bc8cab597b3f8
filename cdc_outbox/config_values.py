"""What a single setting may hold: durations, sizes, topic names, addresses, files."""

from __future__ import annotations

import os
import re
import string
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

TOPIC_FIELDS = ("aggregate_type", "aggregate_id", "event_type")
"""What `kafka.topic` may name in braces."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d)?")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?([kKMG]i?B|B)?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_HOST = re.compile(r"[^\s:/,]+|\[[0-9A-Fa-f:.%]+\]")


def seconds(value: object) -> float:
    """Seconds of `10s`, `250ms`, `1h` or a plain number of seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 1e15:
        return float(value)
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("must be a duration such as 250ms, 10s, 5m, 1h or 7d")
    return round(float(found[1]) * _UNITS[found[2] or "s"], 9)


def _size(value: object) -> int:
    """Bytes of `64MiB`, `256KiB`, `1MB` or a plain number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    size = float(found[1]) * _BYTES.get(found[2] or "", 0) if found else 0.5
    if not size.is_integer():
        raise ValueError("must be a number of bytes such as 1000, 256KiB, 64MiB or 1MB")
    return int(size)


def between(least: str, most: str) -> AfterValidator:
    """Limits of a duration or a size, both included, written as in a file so that a message shows units."""
    parse = seconds if _DURATION.fullmatch(least) else _size
    low, high = parse(least), parse(most)

    def check(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(f"must be from {least} to {most}")
        return value

    return AfterValidator(check)


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _single(value: object) -> object:
    if not isinstance(value, (str, int, float)):
        raise ValueError("must be text, a number, true or false")
    return value


def _existing_file(value: str) -> str:
    if not (Path(value).is_file() and os.access(value, os.R_OK)):
        raise ValueError("must be a file that this user may read")
    return value


def _topic_name(value: str) -> str:
    if not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise ValueError("must be a Kafka topic name: letters, digits and . _ - only, at most 249")
    return value


def topic_template(value: str) -> str:
    wrong = ValueError(
        "must be a topic name with, in braces, any of " + ", ".join(f"{{{one}}}" for one in TOPIC_FIELDS)
    )
    try:
        parts = list(string.Formatter().parse(value))
    except ValueError:
        raise wrong from None
    for literal, name, spec, conversion in parts:
        if spec or conversion or (name is not None and name not in TOPIC_FIELDS):
            raise wrong
        if literal and not _TOPIC.fullmatch(literal):
            raise wrong
    if not value:
        raise wrong
    return value


def time_zone_name(value: str) -> str:
    """An offset that MySQL takes, SYSTEM, or what may be a name: the server alone knows which there are."""
    offset = re.fullmatch(r"[+-](\d{1,2}):(\d\d)", value)
    if offset is not None:
        valid = int(offset[1]) < 14 + (value == "+14:00") and int(offset[2]) < 60
    else:
        valid = re.fullmatch(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", value) is not None
    if not valid:
        raise ValueError("must be SYSTEM, an offset such as +08:00, or a name such as Asia/Shanghai")
    return value


def host_name(value: str) -> str:
    try:
        value.encode("idna")  # as a look-up does, with an error that nobody expects of it
    except UnicodeError:
        raise ValueError("must be a host name or an address") from None
    return value


def host_and_port(value: str) -> str:
    host, _, port = value.rpartition(":")
    host_name(host)
    if not (_HOST.fullmatch(host) and re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= 65535):
        raise ValueError("must be host:port")
    return value


def http_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s@]+", value):
        raise ValueError("must be an http:// or https:// address, without user and password in it")
    return value


def broker_list(value: str) -> str:
    return ",".join(host_and_port(one.strip()) for one in value.split(","))


def impossible(key: str, text: str) -> PydanticCustomError:
    """A combination that cannot work, reported at `key` of the model that is being checked."""
    return PydanticCustomError("impossible", "{text}", {"key": key, "text": text})


def _schema(number: str, text: re.Pattern[str]) -> WithJsonSchema:
    """For editors: the number itself, its text with a unit, or a `${VAR}`."""
    pattern = rf"^{text.pattern}$|\$\{{"
    return WithJsonSchema({"anyOf": [{"type": number, "minimum": 0}, {"type": "string", "pattern": pattern}]})


Seconds = Annotated[float, BeforeValidator(seconds), _schema("number", _DURATION)]
Bytes = Annotated[int, BeforeValidator(_size), _schema("integer", _SIZE)]
NUMBER = BeforeValidator(_no_boolean)
Option = Annotated[Any, BeforeValidator(_single), WithJsonSchema({"type": ["string", "number", "boolean"]})]
FileName = Annotated[str, AfterValidator(_existing_file)]
TopicName = Annotated[str, AfterValidator(_topic_name)]
Text = Annotated[str, Field(min_length=1)]
HostName = Annotated[Text, AfterValidator(host_name)]
