"""Small breakages of the relay, at least one for each promise, each with the test that must go red under it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One change: in `file`, `before` (which stands there exactly once) becomes `after`."""

    name: str
    promise: str
    file: str
    before: str
    after: str
    test: str


MUTANTS = [
    Mutant(
        "p1-position-passes-what-is-in-flight",
        "P1",
        "cdc_outbox/relay/in_flight.py",
        "takewhile(lambda transaction: not transaction.unsettled, self._transactions)",
        "self._transactions",
        "tests/unit/relay/test_in_flight.py::test_position_is_the_settled_prefix",
    ),
    Mutant(
        "p1-no-sweep",
        "P1",
        "cdc_outbox/relay/poller.py",
        "            self._note_pending()\n        return False\n",
        "            pass\n        return False\n",
        "tests/acceptance/test_restart.py::test_what_the_binlog_does_not_show_is_swept",
    ),
    Mutant(
        "p2-no-parking",
        "P2",
        "cdc_outbox/relay/in_flight.py",
        "return self._blocks.get((event.table, event.aggregate_type, event.aggregate_id)) if self._blocks else None",
        "return None",
        "tests/acceptance/test_failures.py::test_successors_wait_and_keep_their_order",
    ),
    Mutant(
        "p2-freed-although-touched-since",
        "P2",
        "cdc_outbox/relay/in_flight.py",
        "if block is None or block.touched >= number or block.unwritten:",
        "if block is None or block.unwritten:",
        "tests/unit/relay/test_in_flight.py::test_a_pass_frees_only_what_nothing_touched_since",
    ),
    Mutant(
        "p3-an-outage-spends-retries",
        "P3",
        "cdc_outbox/relay/pipeline.py",
        "            elif isinstance(error, Hold):\n                raise error\n",
        '            elif isinstance(error, Hold):\n                self._refuse(envelope, RecordRefused("OUTAGE"))\n',
        "tests/unit/relay/test_pipeline.py::test_an_unknown_outcome_spends_no_retry",
    ),
    Mutant(
        "p4-status-changes-without-condition",
        "P4",
        "cdc_outbox/mysql/queries.sql",
        "SET status = 2, next_retry_at = NULL\nWHERE (id, event_id) IN ({rows}) AND status IN (0, 1)",
        "SET status = 2, next_retry_at = NULL\nWHERE (id, event_id) IN ({rows})",
        "tests/integration/test_status_changes.py::test_a_row_changes_only_from_what_is_expected",
    ),
    Mutant(
        "p4-rows-named-by-id-alone",
        "P4",
        "cdc_outbox/mysql/outbox_table.py",
        'return ",".join(f"({int(id)},{session.literal(event_id)})" for id, event_id in rows)',
        'return ",".join(f"({int(id)},event_id)" for id, event_id in rows)',
        "tests/integration/test_status_changes.py::test_a_row_is_named_by_id_and_event_id",
    ),
    Mutant(
        "p5-a-lost-checkpoint-is-not-swept",
        "P5",
        "cdc_outbox/relay/poller.py",
        "            self._sweep_everything()\n",
        "            pass\n",
        "tests/acceptance/test_main_job.py::test_what_was_there_before_the_first_start_comes_first",
    ),
    Mutant(
        "p6-no-fence",
        "P6",
        "cdc_outbox/mysql/checkpoint.py",
        'if not session.query(query("fence"), (self.name, self.epoch, self.owner)):',
        'if session.query(query("fence"), (self.name, self.epoch, self.owner)) is None:',
        "tests/integration/test_status_changes.py::test_a_deposed_relay_writes_nothing",
    ),
    Mutant(
        "p6-a-lease-that-never-ends",
        "P6",
        "cdc_outbox/mysql/leadership.py",
        "        if self._clock() >= self.deadline:\n",
        "        if self._clock() < 0:\n",
        "tests/unit/relay/test_pipeline.py::test_nothing_is_handed_over_past_the_lease",
    ),
    Mutant(
        "p7-no-look-at-statuses-after-a-start",
        "P7",
        "cdc_outbox/relay/intake.py",
        "        if self._check_until is not None:\n",
        "        if self._check_until is not None and not envelopes:\n",
        "tests/acceptance/test_restart.py::test_what_was_settled_past_the_position_is_not_sent_again",
    ),
    Mutant(
        "p8-own-checkpoint-counts-as-traffic",
        "P8",
        "cdc_outbox/binlog/layouts.py",
        "self.foreign = not ours and table.name != CHECKPOINT_TABLE",
        "self.foreign = not ours",
        "tests/integration/test_traffic.py::test_status_changes_and_any_relays_checkpoint_are_no_traffic",
    ),
]
