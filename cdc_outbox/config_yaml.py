"""YAML files that remember the line of each key, and whose error messages never quote their contents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from cdc_outbox.config_source import KeyPath, Source
from cdc_outbox.errors import Refused


class _Loader(yaml.SafeLoader):
    """Scalars as YAML 1.2 reads them: `+08:00`, `off` and `0644` are text, not numbers and booleans."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def read_file(path: Path) -> Source:
    """Parse a YAML file. Raises Refused where it cannot be read or is not YAML; never quotes its contents."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise Refused(
            f"The configuration file {path} does not exist",
            hint="name it with --config FILE or CDC_OUTBOX_CONFIG; start from config/cdc-outbox.example.yaml",
        ) from None
    except OSError as error:
        raise Refused(f"The configuration file {path} cannot be read: {error.strerror}") from None
    source = Source(name=str(path))
    try:
        node, loader = _compose(content, source)
        if isinstance(node, yaml.MappingNode):
            source.tree = _Walk(source, loader).mapping(node, ())
        elif node is not None:
            raise Refused(f"{path}:{node.start_mark.line + 1}: the file must hold settings, `key: value`")
    except RecursionError:
        raise Refused(f"{path}: this is nested too deeply") from None
    return source


def parse_value(text: str) -> object:
    """Read the text of an environment variable as YAML. Raises ValueError."""
    source = Source(name="")
    try:
        node, loader = _compose(text.encode(errors="surrogateescape"), source)
        value = None if node is None else _Walk(source, loader).value(node, ())
    except (Refused, RecursionError):
        raise ValueError("is not valid YAML") from None
    if source.problems:
        raise ValueError(source.problems[0].text)
    return value


def _compose(content: bytes, source: Source) -> tuple[yaml.Node | None, _Loader]:
    try:
        loader = _Loader(content)
        return loader.get_single_node(), loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise Refused(
            f"{source.name}{line}: this is not valid YAML: {_yaml_problem(error)}",
            hint="a value with any of : { } [ ] , & * # ! % @ in it belongs in quotes",
        ) from None
    except (yaml.YAMLError, UnicodeError):
        raise Refused(f"{source.name}: this is not a UTF-8 text file") from None


def _yaml_problem(error: yaml.MarkedYAMLError) -> str:
    """PyYAML's words, but for those that quote what may be part of a password."""
    problem = error.problem or "unreadable"
    if "alias" in problem or "anchor" in problem:
        return "a value that begins with * or & must be in quotes"
    if "tag" in problem:
        return "a value that begins with ! must be in quotes"
    if "another document" in problem:
        return "there is a second document (---) in it"
    return problem


class _Walk:
    """Turns nodes into plain values, noting the line of each key."""

    def __init__(self, source: Source, loader: _Loader) -> None:
        self._source = source
        self._loader = loader
        self._open: list[yaml.Node] = []

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        self._complain_twice(node, path)
        try:
            self._loader.flatten_mapping(node)
        except yaml.MarkedYAMLError:
            self._source.complain(path, "`<<` must be followed by a mapping")
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._source.complain(path, "a key must be plain text")
                continue
            inner = (*path, str(key_node.value))
            self._note(inner, key_node.start_mark.line + 1)
            result[str(key_node.value)] = self.value(value_node, inner)
        return result

    def _complain_twice(self, node: yaml.MappingNode, path: KeyPath) -> None:
        lines: dict[str, int] = {}
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.tag != "tag:yaml.org,2002:merge":
                name, line = str(key_node.value), key_node.start_mark.line + 1
                if name in lines:
                    self._note((*path, name), line)
                    self._source.complain((*path, name), f"is given twice (first in line {lines[name]})")
                lines.setdefault(name, line)

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        if any(node is one for one in self._open):
            self._source.complain(path, "contains itself")
            return None
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return self._sequence(node, path)
            return self._scalar(node, path)
        finally:
            self._open.pop()

    def _sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self._note((*path, index), item.start_mark.line + 1)
            items.append(self.value(item, (*path, index)))
        return items

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        text = str(node.value)
        match node.tag.removeprefix("tag:yaml.org,2002:"):
            case "str" | "merge":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int" | "float" as kind:
                try:
                    return int(text) if kind == "int" else float(text)
                except ValueError:
                    return text
        self._source.complain(path, "begins with !, a YAML tag; put the value in quotes")
        return None

    def _note(self, path: KeyPath, line: int) -> None:
        self._source.where[path] = f"{self._source.name}:{line}"
