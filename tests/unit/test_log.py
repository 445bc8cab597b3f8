"""The log's two formats, and alerts that are counted always and written once a minute."""

from __future__ import annotations

import io
import json
import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from cdc_outbox.config import LogSettings
from cdc_outbox.ops.log import MAX_TOPICS, OTHERS, Alerts, configure_logging, log_event, log_exception


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged, with the process' logging put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("cdc_outbox")
    before = (root.handlers[:], root.level, ours.level, logging.raiseExceptions)
    yield io.StringIO()
    root.handlers[:], level, ours_level, logging.raiseExceptions = before
    root.setLevel(level)
    ours.setLevel(ours_level)


LOGGER = logging.getLogger("cdc_outbox.test")


def test_text_is_one_line_with_event_and_fields(stream: io.StringIO) -> None:
    configure_logging(LogSettings(), stream)
    log_event(LOGGER, logging.INFO, "leader_elected", "100 % ours\nnow", epoch=4, why="a b", nothing="")
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.endswith('INFO    leader_elected: 100 % ours\\nnow epoch=4 why="a b" nothing=""\n')


def test_json_is_one_object_a_line(stream: io.StringIO) -> None:
    configure_logging(LogSettings(format="json"), stream)
    log_event(LOGGER, logging.WARNING, "odd", "订单\n%s", level="mine", table=object, count=2)
    line = json.loads(stream.getvalue())
    assert line["level"] == "warning"
    assert (line["event"], line["message"], line["count"]) == ("odd", "订单\n%s", 2)
    assert line["time"].endswith("Z")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_is_kept(stream: io.StringIO, form: str) -> None:
    configure_logging(LogSettings.model_validate({"format": form}), stream)
    try:
        raise KeyError("lost")
    except KeyError:
        log_exception(LOGGER, "unexpected_error", "Unexpected")
    assert "Traceback" in stream.getvalue()
    assert "KeyError" in stream.getvalue()


def test_level_is_for_our_own_lines_only(stream: io.StringIO) -> None:
    configure_logging(LogSettings(level="debug"), stream)
    LOGGER.debug("ours")
    logging.getLogger("pymysqlreplication").info("{'passwd': 'x'}")
    assert "ours" in stream.getvalue()
    assert "passwd" not in stream.getvalue()
    configure_logging(LogSettings(level="error"), stream)
    LOGGER.warning("quiet")
    assert "quiet" not in stream.getvalue()


def test_a_closed_stream_is_survived(stream: io.StringIO) -> None:
    configure_logging(LogSettings(), stream)
    stream.close()
    LOGGER.error("to nobody")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_alerts_are_grouped_by_kind_and_topic(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    clock = Clock()
    alerts = Alerts(counted.append, clock=clock)
    for _ in range(3):
        alerts.alert("dead_letter", "first", topic="a", id=1)
    alerts.alert("dead_letter", "other topic", topic="b")
    alerts.alert("hold", "other kind")
    assert [record.getMessage() for record in caplog.records] == ["first", "other topic", "other kind"]
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert counted == ["dead_letter"] * 4 + ["hold"]
    clock.now = 59.9
    alerts.alert("dead_letter", "held back", topic="a")
    alerts.flush()
    assert len(caplog.records) == 3
    clock.now = 60
    alerts.alert("dead_letter", "again", topic="a")
    record = caplog.records[-1]
    assert (record.getMessage(), vars(record)["event"]) == ("again", "dead_letter")
    assert vars(record)["fields"] == {"topic": "a", "held_back": 3}


def test_what_was_held_back_is_told_when_nothing_follows(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    alerts = Alerts(lambda _: None, clock=clock)
    for _ in range(3):
        alerts.alert("skipped", "once", topic="a")
    alerts.alert("single", "once")
    clock.now = 61
    alerts.flush()
    assert [record.getMessage() for record in caplog.records[2:]] == ["2 more of this kind"]
    alerts.alert("skipped", "within a minute of that line", topic="a")
    clock.now = 200
    alerts.flush()
    alerts.flush()
    assert len(caplog.records) == 4
    clock.now = 260
    alerts.flush()
    alerts.alert("skipped", "new", topic="a")
    alerts.alert("skipped", "held", topic="a")
    alerts.flush(everything=True)
    assert [record.getMessage() for record in caplog.records[4:]] == ["new", "1 more of this kind"]


def test_a_hundred_thousand_alerts_are_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Topics come from rows: as many of them as there are rows must not be as many lines, nor fill the memory."""
    clock = Clock()
    counted: Counter[str] = Counter()
    alerts = Alerts(lambda kind: counted.update([kind]), clock=clock)
    for number in range(100_000):
        alerts.alert("event_dead", "is dead", topic=f"type-{number}")
    alerts.alert("hold", "other kinds are not left out", topic="kafka")
    assert counted == {"event_dead": 100_000, "hold": 1}
    assert len(caplog.records) == MAX_TOPICS + 2
    clock.now = 61
    alerts.flush()
    last = vars(caplog.records[-1])
    assert (last["fields"]["topic"], last["fields"]["held_back"]) == (OTHERS, 100_000 - MAX_TOPICS - 1)
