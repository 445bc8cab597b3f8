"""Says what is wrong with a setting: what was found, what would be right. Must never show a secret."""

from __future__ import annotations

import re

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from cdc_outbox.config_source import KeyPath, Kind, Problem, Source, dotted, nearest, setting_kinds

_EXPECTED = {
    "string_type": "must be text; put it in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "list_type": "must be a list, [a, b]",
    "dict_type": "must be a mapping, key: value",
    "model_type": "must be a section with keys below it",
}


def complain(source: Source, errors: list[ErrorDetails], model: type[BaseModel]) -> None:
    """Add what `model` found wrong to the source's problems, each at the key that has to change."""
    kinds = setting_kinds(model)
    for error in errors:
        key = error.get("ctx", {}).get("key")
        at: KeyPath = (*error["loc"], key) if key else error["loc"]
        if not source.is_bad(at):
            source.complain(at, _explain(error, at, source, kinds))


def summary(source: Source) -> str:
    lines = [str(one) for one in sorted(source.problems, key=_line)]
    if len(lines) == 1:
        return lines[0]
    return f"{len(lines)} settings are wrong:\n" + "\n".join(f"  {one}" for one in lines)


def _line(problem: Problem) -> int:
    """The line a problem is in, 0 for the environment's."""
    line = problem.where.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def _explain(error: ErrorDetails, at: KeyPath, source: Source, kinds: dict[KeyPath, Kind]) -> str:
    kind = error["type"]
    if kind == "missing":
        return "is missing"
    if kind == "impossible":
        return error["msg"]
    if kind == "extra_forbidden":
        meant = _meant_setting(at, kinds)
        return "no such setting" + (f"; did you mean {meant}?" if meant else "")
    context = error.get("ctx", {})
    if kind == "literal_error":
        values = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        text = f"must be one of {', '.join(values)}" if len(values) > 1 else f"must be {values[0]}"
        by_lower = {value.lower(): value for value in values}
        meant = nearest(str(error["input"]).lower(), by_lower)
        text += f" (did you mean {by_lower[meant]}?)" if meant else ""
    elif kind == "value_error":
        text = str(context.get("error", error["msg"]))
        if text.endswith("supported yet"):
            return text
    else:
        text = _EXPECTED.get(kind) or re.sub(r"^(Input|String|List) should", "must", error["msg"])
    return f"found {_found(error['input'], at, source, kinds)}; {text}"


def _meant_setting(at: KeyPath, kinds: dict[KeyPath, Kind]) -> str | None:
    """The nearest key of the same section, else of any section."""
    name = str(at[-1])
    siblings = {str(path[-1]): path for path in kinds if path[:-1] == at[:-1]}
    anywhere = {str(path[-1]): path for path in reversed(kinds)}
    for candidates in (siblings, anywhere):
        meant = nearest(name, candidates)
        if meant is not None:
            return dotted(candidates[meant])
    return None


def _found(value: object, at: KeyPath, source: Source, kinds: dict[KeyPath, Kind]) -> str:
    plain = {dict: "a mapping", list: "a list", type(None): "nothing", bool: str(value).lower()}
    if type(value) in plain:
        return plain[type(value)]
    # Options may hold passwords, and a slip of indentation puts one where a section should be.
    if kinds.get(_setting(at)) in {"secret", "section", "mapping"}:
        return "text" if isinstance(value, str) else "a number"
    shown = source.written.get(at, value)
    text = repr(shown) if isinstance(shown, str) else str(shown)
    return text if len(text) <= 80 else text[:77] + "…"


def _setting(at: KeyPath) -> KeyPath:
    """The key of the setting that `at`, perhaps an item of its list or mapping, belongs to."""
    for index, part in enumerate(at):
        if isinstance(part, int):
            return at[:index]
    return at
