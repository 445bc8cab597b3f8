"""The environment over the file: CDC_OUTBOX_SECTION__KEY, `${VAR}` inside texts, `file:/path` for secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from cdc_outbox.config_source import KeyPath, Kind, Problem, Source, nearest, setting_kinds
from cdc_outbox.config_yaml import parse_value

ENV_PREFIX = "CDC_OUTBOX_"
ENV_CONFIG = "CDC_OUTBOX_CONFIG"
_NOT_SETTINGS = frozenset({ENV_CONFIG, "CDC_OUTBOX_PURE", "CDC_OUTBOX_KILL_POINT"})
_TEST_PREFIX = "CDC_OUTBOX_TEST_"

# Kubernetes puts such names into every pod for a Service called cdc-outbox or cdc-outbox-something.
_KUBERNETES = re.compile(
    r"CDC_OUTBOX_(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?"
    r"|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_KUBERNETES_PORT = re.compile(r"CDC_OUTBOX_[A-Z0-9_]+_PORT")
_KUBERNETES_PORT_VALUE = re.compile(r"(?:tcp|udp|sctp)://")

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


def environment_name(path: KeyPath) -> str:
    return ENV_PREFIX + "__".join(str(part) for part in path).upper()


def apply_environment(source: Source, model: type[BaseModel], environ: Mapping[str, str]) -> None:
    """Lay `CDC_OUTBOX_SECTION__KEY` over what the file said; a whole section or list may be given as YAML."""
    kinds = setting_kinds(model)
    known = {environment_name(path): path for path in kinds}
    ours = (name for name in environ if name.startswith(ENV_PREFIX))
    # A section given whole comes before its keys, whatever the order of the environment is.
    for name in sorted(ours, key=lambda one: (one.count("__"), one)):
        path = known.get(name.upper())
        if path is not None:
            _set(source, path, kinds[path], name, environ[name])
        elif not _foreign(name, environ[name]):
            meant = nearest(name.upper(), known)
            text = "no such setting" + (f"; did you mean {meant}?" if meant else "")
            source.problems.append(Problem(f"environment variable {name}", "", text))


def _foreign(name: str, value: str) -> bool:
    if name in _NOT_SETTINGS or name.startswith(_TEST_PREFIX) or name == "CDC_OUTBOX_PORT":
        return True
    if _KUBERNETES.fullmatch(name):
        return True
    # CDC_OUTBOX_MYSQL_PORT=3306 is a slip of the pen; only its value tells a Service's variable from that.
    return bool(_KUBERNETES_PORT.fullmatch(name) and _KUBERNETES_PORT_VALUE.match(value))


def _set(source: Source, path: KeyPath, kind: Kind, name: str, text: str) -> None:
    place = f"environment variable {name}"
    try:
        value = _environment_value(kind, text)
    except ValueError as error:
        source.where[path] = place
        source.complain(path, str(error))
        return
    section: Any = source.tree
    for part in path[:-1]:
        if section.get(part) is None:
            section[part] = {}
        section = section[part]
        if not isinstance(section, dict):
            return  # the file has something else in the section's place, which is refused by itself
    section[path[-1]] = value
    for inner in [one for one in source.where if one[: len(path)] == path]:
        del source.where[inner]
    source.where[path] = place
    source.from_environment.add(path)


def _environment_value(kind: Kind, text: str) -> object:
    match kind:
        case "secret" | "text":
            return text
        case "list" if not text.lstrip().startswith("["):
            return [part.strip() for part in text.split(",") if part.strip()]
    return parse_value(text)


def expand(source: Source, model: type[BaseModel], environ: Mapping[str, str]) -> None:
    """Replace `${VAR}` in the file's strings (`$${` stands for itself), then `file:/path` in secrets."""
    kinds = setting_kinds(model)
    for holder, key, path in list(_strings(source.tree, ())):
        text: str = holder[key]
        if not any(path[:length] in source.from_environment for length in range(1, len(path) + 1)):
            text = _substitute(source, path, text, environ)
        if kinds.get(path) == "secret" and text.startswith("file:"):
            text = _read_secret(source, path, text.removeprefix("file:"))
        holder[key] = text


def _strings(node: Any, path: KeyPath) -> Iterator[tuple[Any, Any, KeyPath]]:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        if isinstance(value, str):
            yield node, key, (*path, key)
        elif isinstance(value, (dict, list)):
            yield from _strings(value, (*path, key))


def _substitute(source: Source, path: KeyPath, text: str, environ: Mapping[str, str]) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        if found[1] is None:
            source.complain(path, "`${` must be followed by a variable's name and `}`; `$${` stands for itself")
            return ""
        if found[1] not in environ:
            source.complain(path, f"the environment variable {found[1]} is not set")
            return ""
        source.written[path] = text
        return environ[found[1]]

    return _VARIABLE.sub(replace, text)


def _read_secret(source: Source, path: KeyPath, name: str) -> str:
    try:
        text = Path(name).read_text(encoding="utf-8")
    except UnicodeError:
        source.complain(path, f"{name} is not a UTF-8 text file")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        source.complain(path, f"{name} cannot be read: {reason}")
    else:
        return text.removesuffix("\n").removesuffix("\r")
    return ""
