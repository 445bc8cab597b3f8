"""Small breakages of the relay, at least one for each promise, each with the test that must go red under it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One change: in `file`, `before` (which stands there exactly once) becomes `after`.

    long: tried with --long only; each promise has others that are tried every day.
    """

    name: str
    promise: str
    file: str
    before: str
    after: str
    test: str
    long: bool = False


SIMULATED = "tests/property/test_relay.py::test_the_promises_hold_whatever_happens"
"""The real relay in a simulated world: whatever happens, in any order."""

KEPT = "tests/property/test_relay.py::test_a_history_that_was_kept"
"""The same, in histories that showed these breakages."""

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
        long=True,
    ),
    Mutant(
        "p2-no-parking",
        "P2",
        "cdc_outbox/relay/in_flight.py",
        "return self._blocks.get((event.table, event.aggregate_type, event.aggregate_id)) if self._blocks else None",
        "return None",
        "tests/acceptance/test_failures.py::test_successors_wait_and_keep_their_order",
        long=True,
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
        "            return RecordRefused(error.suspect, error.message)\n        return error\n",
        '            return RecordRefused(error.suspect, error.message)\n        return RecordRefused("OUTAGE")\n',
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
        long=True,
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
        long=True,
    ),
    Mutant(
        "p8-own-checkpoint-counts-as-traffic",
        "P8",
        "cdc_outbox/binlog/layouts.py",
        "self.foreign = not ours and table.name != CHECKPOINT_TABLE",
        "self.foreign = not ours",
        "tests/integration/test_traffic.py::test_status_changes_and_any_relays_checkpoint_are_no_traffic",
    ),
    Mutant(
        "p1-a-locked-row-is-forgotten",
        "P1",
        "cdc_outbox/relay/settler.py",
        "        self._ledger.settle_rows(free)\n",
        "        self._ledger.settle_rows(batch)\n",
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p1-dead-before-its-letter",
        "P1",
        "cdc_outbox/relay/in_flight.py",
        "            if retry_in is None:\n                envelope.stage = Stage.DYING\n",
        "            if retry_in is None:\n                self._owe(envelope, Stage.DEAD)\n",
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p2-no-hand-over-rule",
        "P2",
        "cdc_outbox/relay/poller.py",
        "                if not self._ledger.handed_over(key):\n",
        "                if False:\n",
        SIMULATED,
    ),
    Mutant(
        "p1-what-waits-gets-no-copy",
        "P1",
        "cdc_outbox/relay/transient_rows.py",
        "_COPIED = {Stage.REFUSED, Stage.DEAD, Stage.PARKING, Stage.PUT_BACK}",
        "_COPIED = {Stage.REFUSED, Stage.DEAD}",
        "tests/property/test_relay.py::test_the_promises_hold_where_rows_are_deleted_at_once",
    ),
    Mutant(
        "p2-copies-go-before-what-is-read-again",
        "P2",
        "cdc_outbox/relay/poller.py",
        "(not self._transient or self._is_past_watermark())",
        "True",
        "tests/unit/relay/test_poller.py::test_copies_wait_until_what_comes_before_them_has_been_read_again",
    ),
    Mutant(
        "p2-a-stuck-partition-holds-up-all",
        "P2",
        "cdc_outbox/relay/partition_holds.py",
        "(watched.others_since is not None or not self._has_leader(where, now))",
        "not self._has_leader(where, now)",
        "tests/unit/relay/test_partition_holds.py::test_a_partition_is_held_once_it_fills_half_the_window_and_others_go_on",
    ),
    Mutant(
        "p2-freed-although-its-partition-is-held",
        "P2",
        "cdc_outbox/relay/poller.py",
        "a not in stuck and a[1] not in held and a not in in_held",
        "a not in stuck and a[1] not in held",
        "tests/unit/relay/test_poller.py::test_what_waits_for_its_partition_is_not_freed_either",
    ),
    Mutant(
        "p2-queued-rows-do-not-block-the-tail",
        "P2",
        "cdc_outbox/relay/in_flight.py",
        "                self._count(envelope, block)\n                self._open[event.key] = envelope",
        "                self._open[event.key] = envelope",
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p2-a-queued-row-is-not-checked-again",
        "P2",
        "cdc_outbox/relay/in_flight.py",
        "        return self.ordered and envelope.block is not None and envelope.block.refusals != envelope.refusals",
        "        return False",
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p2-blocked-aggregates-are-not-read",
        "P2",
        "cdc_outbox/relay/incarnation.py",
        "        self.ledger.block(blocked)\n",
        "        self.ledger.block([])\n",
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p3-putting-back-spends-a-retry",
        "P3",
        "cdc_outbox/relay/settler.py",
        "            return table.put_back(session, rows)\n",
        '            return table.mark_failed(session, rows, 0, "")\n',
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p5-a-reset-is-not-swept",
        "P5",
        "cdc_outbox/relay/incarnation.py",
        "bootstrap=sweep_first",
        "bootstrap=False",
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p5-reading-begins-before-the-sweep-is-over",
        "P5",
        "cdc_outbox/relay/incarnation.py",
        "        if not self.recovered.bootstrap:\n",
        "        if True:\n",
        SIMULATED,
    ),
    Mutant(
        "p6-claims-without-the-fence",
        "P6",
        "cdc_outbox/relay/poller.py",
        "                self._fence.check(self._session)\n                yield queued",
        "                yield queued",
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p7-not-checked-again-after-the-sweep",
        "P7",
        "cdc_outbox/relay/incarnation.py",
        "        self._intake.check_again_until(swept)\n",
        "        pass\n",
        SIMULATED,
    ),
    Mutant(
        "p7-the-boundary-is-the-start",
        "P7",
        "cdc_outbox/relay/incarnation.py",
        "        return Recovered(start, server_position(session, gtids=start.gtid_set is not None), bootstrap)",
        "        return Recovered(start, start.copy(), bootstrap)",
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p7-what-the-primary-purged-counts-as-read",
        "P7",
        "cdc_outbox/relay/poller.py",
        "  # behind one name there may be many\n                self._ledger.unreadable(purged_gtids(server))",
        "\n                self._ledger.unreadable(purged_gtids(self._session))",
        "tests/unit/relay/test_poller.py::test_what_the_primary_purged_may_still_come_from_the_replica",
    ),
    Mutant(
        "p8-a-position-is-reason-enough",
        "P8",
        "cdc_outbox/relay/in_flight.py",
        "self._transactions[0].unsettled or not (self.traffic or self.rotated):",
        "self._transactions[0].unsettled:",
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p1-rows-at-one-are-left-alone",
        "P1",
        "cdc_outbox/relay/incarnation.py",
        "                    table.release_sending(session)\n",
        "                    pass\n",
        SIMULATED,
        long=True,
    ),
    Mutant(
        "p2-a-file-of-another-server-is-followed-at-once",
        "P2",
        "cdc_outbox/mysql/position_file.py",
        "        return stored is not None and stored[1] != server_uuid\n",
        "        return False\n",
        KEPT,
        long=True,
    ),
    Mutant(
        "p7-gtids-that-are-owned-do-not-count",
        "P7",
        "cdc_outbox/mysql/checkpoint.py",
        "return Position(gtid_set=owned.union(GtidSet.parse(row[1])))",
        "return Position(gtid_set=GtidSet.parse(row[1]))",
        KEPT,
        long=True,
    ),
]
