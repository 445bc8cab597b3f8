"""The benchmark's sides, each on a small backlog: they do what their figures are said to be of."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.backlog import Backlog
from bench.drain import drain_backlog
from bench.figures import DEBEZIUM_THROUGHPUT, DEFAULT_SIDE, HANDWRITTEN, POLLING
from bench.inserts import measure_inserts
from bench.latency import measure_latency
from bench.servers import Servers
from bench.sides import SIDES
from cdc_outbox.testing.services.endpoint import KafkaEndpoint

if TYPE_CHECKING:
    from tests.conftest import MakeMySQL


def say(text: str) -> None:
    print(text, file=sys.stderr)


@pytest.fixture
def servers(make_mysql: MakeMySQL, kafka_broker: KafkaEndpoint, monkeypatch: pytest.MonkeyPatch) -> Servers:
    """A MySQL of its own: while a backlog is written, its durability is relaxed."""
    monkeypatch.chdir(Path(__file__).parents[2])  # the processes that are started import from here
    return Servers(make_mysql().endpoint, kafka_broker)


def test_sides_that_write_back(servers: Servers) -> None:
    backlog = Backlog(700, rows=6, noise=1)
    for name in (DEFAULT_SIDE, POLLING, HANDWRITTEN):
        found = drain_backlog(servers, SIDES[name], backlog, say)
        assert (found.side, found.events, found.duplicates) == (name, 700, 0)
        assert 0 < found.second_half < found.seconds
        assert found.peak_rss > 20_000_000
        assert found.binlog_bytes > 700
    inserted = measure_inserts(servers, SIDES[POLLING], 1, say)
    assert inserted.inserts > 10
    late = measure_latency(servers, SIDES[HANDWRITTEN], 20, 1, say)
    assert (late.events, late.duplicates) == (20, 0)
    assert 0 < late.p50 <= late.p95 <= late.p99 <= late.longest


@pytest.mark.long
def test_debezium(servers: Servers) -> None:
    found = drain_backlog(servers, SIDES[DEBEZIUM_THROUGHPUT], Backlog(700), say)
    assert (found.events, found.duplicates) == (700, 0)
    late = measure_latency(servers, SIDES["debezium-latency"], 20, 1, say)
    assert (late.events, late.duplicates) == (20, 0)
