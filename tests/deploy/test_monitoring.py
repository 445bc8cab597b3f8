"""Alert rules and dashboard against the real metrics: by their names, by promtool, and in a real Prometheus."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from cdc_outbox.config import HttpSettings
from cdc_outbox.ops.health import HealthServer
from cdc_outbox.ops.metrics import ALERT_KINDS, Metrics
from cdc_outbox.testing.services.child import Child
from cdc_outbox.testing.services.endpoint import free_port
from tests.deploy.tools import CONFIG, ROOT, prometheus_tool, run
from tests.harness.world import wait_until

RULES = CONFIG / "prometheus" / "cdc-outbox.rules.yml"
DASHBOARD = CONFIG / "grafana" / "cdc-outbox.json"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text("utf-8")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]


BOARD = json.loads(DASHBOARD.read_text("utf-8"))


def panels() -> list[str]:
    """The query of every panel, with values for Grafana's variables."""
    return [filled(target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]


def filled(expression: str) -> str:
    return expression.replace("$__rate_interval", "1m").replace("$relay", ".*")


MARKS = [filled(one["expr"]) for one in BOARD["annotations"]["list"]]
EXPRESSIONS = [*(str(rule["expr"]) for rule in rules()), *panels(), *MARKS]


def exported() -> dict[str, set[str]]:
    """Sample name -> label names, as a relay exports them."""
    metrics = Metrics("orders")
    metrics.keeps_binlogs(1)
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, {"instance", "job"}).update(sample.labels)
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_queries_name_only_metrics_and_labels_that_there_are(expression: str) -> None:
    there = exported()
    names = set(re.findall(r"\bcdc_outbox_\w+", expression))
    assert names and names <= set(there)
    labels = set().union(*(there[name] for name in names))
    bare = re.sub(r'"[^"]*"', "", expression)
    used = {one for part in re.findall(r"\{([^}]*)\}", bare) for one in re.findall(r"(\w+)\s*(?:=|!)", part)}
    used |= {one.strip() for part in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", bare) for one in part.split(",")}
    assert used <= labels


def lost(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where `theirs` does not have what `ours` has."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from lost(value, theirs[key], f"{path}.{key}") if key in theirs else [f"{path}.{key}"]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for at, (value, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(value, other, f"{path}[{at}]")
    elif ours != theirs:
        yield path


def test_grafanas_own_types_know_everything_in_the_dashboard() -> None:
    """A key that Grafana does not know, or a value of another kind, does not come back from them."""
    register_default_plugins()
    back = json.loads(JSONEncoder().encode(Dashboard.from_json(BOARD)))
    ours_alone = {".annotations.list[0].titleFormat", ".annotations.list[0].textFormat"}  # of Prometheus' annotations
    assert set(lost(BOARD, back)) == ours_alone


def test_panels_fill_the_rows_and_do_not_overlap() -> None:
    taken = [
        (x, y)
        for panel in BOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken)) == 24 * (max(y for _, y in taken) + 1)
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_every_metric_is_looked_at() -> None:
    text = " ".join(EXPRESSIONS)
    ignored = {"cdc_outbox_delivery_seconds_sum", "cdc_outbox_delivery_seconds_count"}
    assert {name for name in exported() if name not in text} == ignored


def sections(page: str = RUNBOOK) -> dict[str, str]:
    return dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL))


def test_the_runbook_has_a_section_for_every_alert_and_no_other() -> None:
    assert set(sections()) == set(ALERT_KINDS) | {rule["alert"] for rule in rules()}
    assert all(text.strip() for text in sections().values())


def test_every_rule_leads_to_its_section() -> None:
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/runbook.md"
        assert anchor in {rule["alert"].lower(), "{{ $labels.kind }}"}
        assert {"summary", "description"} <= set(rule["annotations"])
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_links_of_the_runbook_lead_somewhere() -> None:
    anchors = {name.lower() for name in sections()}
    assert set(re.findall(r"\]\(#([\w-]+)\)", RUNBOOK)) == anchors


def test_the_chinese_runbook_says_the_same() -> None:
    """The same sections, each with the same links, steps and pieces of code."""
    chinese = sections((ROOT / "docs" / "runbook.zh-CN.md").read_text("utf-8"))
    assert list(chinese) == list(sections())
    for name, text in sections().items():
        for mark in (r"`[^`\n]+`", r"\]\(([^)]+)\)", r"^\d\.", r"^\| `"):
            found = [sorted(set(re.findall(mark, one, flags=re.MULTILINE))) for one in (text, chinese[name])]
            assert found[0] == found[1], (name, mark)


def test_promtool_takes_the_rules_and_their_tests_pass() -> None:
    promtool = prometheus_tool("promtool")
    assert "SUCCESS" in run(promtool, "check", "rules", RULES)
    assert "SUCCESS" in run(promtool, "test", "rules", RULES.with_suffix(".test.yml"))


@contextmanager
def prometheus(folder: Path, scraped: int) -> Iterator[int]:
    """A Prometheus with our rules, which scrapes that port every half second; gives its own port."""
    port = free_port()
    (folder / "prometheus.yml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
                "rule_files": [str(RULES)],
                "scrape_configs": [{"job_name": "relay", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}],
            }
        )
    )
    child = Child(
        [
            prometheus_tool("prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/store",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        log=folder / "prometheus.log",
    )
    child.start()
    try:
        yield port
    finally:
        child.stop()


def ask(port: int, path: str, **query: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
        return json.load(answer)["data"]


def answers(port: int) -> bool:
    try:
        return bool(ask(port, "/api/v1/query", query="count(cdc_outbox_leader offset 2s)")["result"])
    except OSError:
        return False


def test_a_real_prometheus_draws_every_panel(tmp_path: Path) -> None:
    metrics = Metrics("orders")
    metrics.leader.set(1)
    metrics.oldest_commit = int(time.time() * 1000) - 90_000
    metrics.keeps_binlogs(604_800)
    metrics.delivery_seconds.observe([0.01, 0.2])
    server = HealthServer(HttpSettings(listen="127.0.0.1:0"), metrics, lambda: (True, "leader"))
    assert server.start()
    assert server.address is not None
    try:
        with prometheus(tmp_path, server.address[1]) as port:
            wait_until(lambda: answers(port), "Prometheus has scraped for two seconds")
            metrics.delivery_seconds.observe([0.01, 0.2])
            wait_until(
                lambda: all(ask(port, "/api/v1/query", query=one)["result"] for one in panels()),
                "every panel has something to draw",
            )
            loaded = ask(port, "/api/v1/rules")["groups"][0]["rules"]
            assert {one["name"] for one in loaded} == {rule["alert"] for rule in rules()}
            pending = 'ALERTS{alertname="CdcOutboxLag"}'
            wait_until(lambda: ask(port, "/api/v1/query", query=pending)["result"], "a lag of 90 s is noticed")
            states = {one["name"]: one["state"] for one in ask(port, "/api/v1/rules")["groups"][0]["rules"]}
            assert states["CdcOutboxDown"] == states["CdcOutboxNoLeader"] == "inactive"
    finally:
        server.stop()
