"""Settings as they were said and where: Source, and what kind of value each key takes. Checks nothing itself."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

KeyPath = tuple[str | int, ...]
Kind = Literal["section", "secret", "text", "list", "mapping", "value"]


class Problem(NamedTuple):
    """One thing that is wrong: where it was written, the setting (may be empty), what to know about it."""

    where: str
    key: str
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in self if part)


@dataclass
class Source:
    """Everything that was said, not yet checked.

    where    file:line or environment name of each key path
    written  text as it was written, where a `${VAR}` in it was replaced: values of variables are never shown
    bad      key paths that already have a problem
    """

    name: str
    tree: dict[str, Any] = field(default_factory=dict)
    where: dict[KeyPath, str] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    bad: set[KeyPath] = field(default_factory=set)
    from_environment: set[KeyPath] = field(default_factory=set)

    def place(self, path: KeyPath) -> str:
        """Where `path`, or the nearest thing around it, was written."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.where:
                return self.where[path[:length]]
        return self.name

    def is_bad(self, path: KeyPath) -> bool:
        """True when `path`, or what it belongs to, already has a problem."""
        return any(path[:length] in self.bad for length in range(1, len(path) + 1))

    def complain(self, path: KeyPath, text: str) -> None:
        self.problems.append(Problem(self.place(path), dotted(path), text))
        self.bad.add(path)


def dotted(path: KeyPath) -> str:
    """`kafka.topic`, `retry.waits[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that was most probably meant."""
    found = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return found[0] if found else None


def setting_kinds(model: type[BaseModel]) -> dict[KeyPath, Kind]:
    """Every key path of `model`, sections included, with the kind of value it takes."""
    kinds: dict[KeyPath, Kind] = {}
    for name, one in model.model_fields.items():
        kind, section = _kind(one.annotation)
        kinds[(name,)] = kind
        if section is not None:
            kinds.update({(name, *rest): value for rest, value in setting_kinds(section).items()})
    return kinds


def _kind(annotation: object) -> tuple[Kind, type[BaseModel] | None]:
    origin = get_origin(annotation)
    if origin in (Annotated, Union, types.UnionType):
        return _kind(next(one for one in get_args(annotation) if one is not type(None)))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section", annotation
    kinds: dict[object, Kind] = {
        SecretStr: "secret",
        str: "text",
        Literal: "text",
        list: "list",
        dict: "mapping",
    }
    return kinds.get(origin or annotation, "value"), None
