"""How fast `archive` goes, without a server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.mysql.archive_table import Page
from cdc_outbox.ops import archive as module

SETTINGS = Settings.model_validate(
    {
        "name": "orders",
        "mysql": {"user": "relay", "password": "x", "database": "shop"},
        "kafka": {"bootstrap_servers": "kafka:9092"},
    }
)
ROWS = 20


class _SentRows:
    """Rows 1 to ROWS, all old; taking them needs no time."""

    def __init__(self, *_: object) -> None:
        self.batches: list[int] = []

    def ends(self) -> tuple[int, int, int]:
        return 1, ROWS, ROWS

    def page(self, above: int, top: int, limit: int) -> Page:
        ids = list(range(above + 1, min(top, above + limit) + 1))
        return Page(ids, ids[-1] if ids else None)

    def move(self, ids: Sequence[int]) -> int:
        self.batches.append(len(ids))
        return len(ids)


class _Run:
    """What `archive` did: rows of each batch, seconds slept behind each, how long its session may be silent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.rows, self.slept, self.lifetime = _SentRows(), list[float](), 0.0
        monkeypatch.setattr(module, "SentRows", lambda *_: self.rows)
        monkeypatch.setattr(module, "command_session", self._session)
        monkeypatch.setattr("cdc_outbox.ops.archive.time.sleep", self.slept.append)
        chosen = {"older_than": 1.0, "batch": 1000, "pause": None, "dry_run": False, **options}
        end = module.archive(SETTINGS, SETTINGS.table_names[0], None, on_progress=lambda _: None, **chosen)
        assert end.moved == ROWS

    @contextlib.contextmanager
    def _session(self, settings: Settings, *, patience: float) -> Iterator[None]:
        self.lifetime = patience
        yield None


@pytest.mark.parametrize("rate", [1, 5, 7])
def test_no_second_has_more_rows_than_the_rate_says(monkeypatch: pytest.MonkeyPatch, rate: int) -> None:
    run = _Run(monkeypatch, rate=rate)
    assert max(run.rows.batches) <= rate
    assert sum(run.slept) == pytest.approx(ROWS / rate, abs=0.1)
    assert max(run.slept) <= 1.0


def test_a_long_pause_does_not_outlast_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _Run(monkeypatch, batch=10, pause=3600.0)
    assert max(run.slept) < run.lifetime


def test_it_rests_four_times_as_long_as_it_worked() -> None:
    assert module.rest(0.030) == pytest.approx(0.120)
    assert module.rest(5.0) == module.MOST_REST


@pytest.mark.parametrize(
    ("options", "slept"),
    [({}, 0.4), ({"pause": 0.0}, 0.0), ({"pause": 0.3}, 0.3), ({"rate": 40}, 0.025), ({"rate": 40, "pause": 0.3}, 0.3)],
)
def test_what_is_asked_for_stands_above_the_rest(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, float], slept: float
) -> None:
    """A batch of five rows takes 0.1 s of this clock."""
    times = iter(range(1000))
    monkeypatch.setattr("cdc_outbox.ops.archive.time.monotonic", lambda: next(times) / 10)
    run = _Run(monkeypatch, batch=5, **options)
    assert run.slept == pytest.approx([slept] * 4)
