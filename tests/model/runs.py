"""The searches of the models: what holds, and which rule taken out breaks which promise. See docs/model.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.model.spin import Verdict, search

SECONDS = 3600.0
"""After which a search is given up."""

PROPERTIES = {
    "P1": r"^\(\(\(st\[i\]==2\)\|\|dead\[i\]\)|^letter",
    "P2": r"sent\[i\]",
    "P6": r"cur==r|lock==r",
    "P7": r"exc\[|!=2|cur!=r",
    "P8": r"endless",
}
"""What the assertion of each promise looks like."""


@dataclass(frozen=True)
class Run:
    """One search. breaks: the promise that must turn out broken, None: everything holds in every state.

    endless: endless runs are looked for as well. short: quick enough for every day.
    """

    name: str
    switches: str
    breaks: str | None
    endless: bool = False
    model: str = "relay"
    short: bool = False

    @property
    def outcome(self) -> str:
        return outcome(self.breaks)


def outcome(broken: str | None) -> str:
    return "holds" if broken is None else f"breaks {broken}"


def searched(run: Run, folder: Path) -> tuple[str | None, Verdict]:
    """The promise that turned out broken, if one did. folder: an empty one to work in."""
    verdict = search(run.model, run.switches.split(), folder, endless=run.endless, seconds=SECONDS, small=run.short)
    if verdict.violated is None:
        return None, verdict
    broken = next((name for name, looks in PROPERTIES.items() if re.search(looks, verdict.violated)), verdict.violated)
    return broken, verdict


RUNS = [
    Run("ok-crash1", "-DRELAYS=1 -DCRASH=1", None, endless=True),
    Run("ok-crash2", "-DRELAYS=1 -DN=3 -DCRASH=2", None),
    Run("ok-crash1-marked", "-DRELAYS=1 -DMARK -DCRASH=1 -DFAIL=1", None),
    Run("ok-two-relays", "-DN=3 -DCRASH=2 -DFAIL=1", None, endless=True),
    Run("ok-three-on-one", "-DRELAYS=1 -DAMASK=0 -DCRASH=1 -DFAIL=1", None),
    Run("ok-bootstrap", "-DRELAYS=1 -DBOOT=1 -DFAIL=1", None, endless=True),
    Run("ok-lost-checkpoint", "-DRELAYS=1 -DN=3 -DLOSTCK=1", None, endless=True),
    Run("ok-table-only-event", "-DRELAYS=1 -DHID=2 -DFAIL=1", None, endless=True),
    Run("ok-late-commit-visibility", "-DRELAYS=1 -DN=3 -DVIS -DFAIL=1", None),
    Run("ok-bootstrap-visibility", "-DRELAYS=1 -DN=3 -DVIS -DBOOT=1 -DFAIL=1", None),
    Run("ok-bootstrap-gtid", "-DRELAYS=1 -DN=3 -DVIS -DGTIDPOS -DBOOT=1 -DFAIL=1", None),
    Run("ok-strict-late-refusal", "-DRELAYS=1 -DN=3 -DSTRICT -DLATEREF", None),
    Run("ok-claim-row", "-DRELAYS=1 -DCLAIMROW -DFAIL=1", None),
    Run("ok-claim-row-timeout", "-DRELAYS=1 -DCLAIMROW -DDELAYREL -DFAIL=1", None),
    Run("ok-rebuild-lost-commit", "-DRELAYS=1 -DN=3 -DREBUILD -DLOSTCOMMIT -DCRASH=2 -DFAIL=1", None, endless=True),
    Run("ok-zombie", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DFAIL=1", None),
    Run("ok-zombie-two-events", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=2 -DAMASK=0 -DFAIL=1", None, endless=True),
    Run("ok-zombie-marked", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DMARK -DAMASK=0 -DFAIL=1", None),
    Run("ok-zombie-one-aggregate", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DAMASK=0 -DFAIL=1", None),
    Run("ok-zombie-claim-row", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DCLAIMROW -DDELAYREL -DFAIL=1", None),
    Run("ok-zombie-lost-checkpoint", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DLOSTCK=1 -DFAIL=0", None),
    Run("ok-zombie-twice-crash", "-DN=2 -DAMASK=0 -DLOSS=2 -DCRASH=1 -DFAIL=1 -DP7WEAK", None),
    Run("ok-records-on-the-wire", "-DRELAYS=1 -DN=3 -DGHOST -DFAIL=1 -DP7WEAK", None),
    Run("ok-person-sets-back-to-0", "-DRELAYS=1 -DPERSON=1 -DFAIL=1", None),
    Run("ok-queued-checked-again", "-DRELAYS=1 -DQUEUED -DRECHECK -DFAIL=2", None),
    Run(
        "ok-queued-bootstrap",
        "-DRELAYS=1 -DN=3 -DQUEUED -DRECHECK -DREBUILD -DMARK -DLOSTCOMMIT -DLOSTCK=1 -DFAIL=1",
        None,
    ),
    Run("idle-ok", "", None, endless=True, model="idle", short=True),
    Run("c01-zombie-P7", "-DN=3 -DLOSS=1 -DCRASH=0 -DFAIL=0", "P7"),
    Run("c01-wire-P7", "-DRELAYS=1 -DN=3 -DGHOST -DFAIL=0", "P7"),
    Run("c02-no-parked-at-start", "-DRELAYS=1 -DNO_STARTP -DFAIL=1", "P2"),
    Run("c02-no-failed-at-start", "-DRELAYS=1 -DNO_START3 -DFAIL=1", "P2"),
    Run("c02-parked-in-memory-only", "-DRELAYS=1 -DB_PARKMEM -DFAIL=1", "P2"),
    Run("c02-parked-after-the-checkpoint", "-DRELAYS=1 -DB_PARKLATE -DFAIL=1", "P2"),
    Run("c03-unblock-when-head-sent", "-DRELAYS=1 -DNO_DRAIN -DCRASH=0", "P2", short=True),
    Run("c03-parked-since-ignored", "-DRELAYS=1 -DAMASK=0 -DNO_SFL -DCRASH=0 -DFAIL=1", "P2"),
    Run("c04-only-status-3-blocks", "-DRELAYS=1 -DN=3 -DAMASK=0 -DNO_ELIG -DCRASH=0", "P2"),
    Run("c05-foreign-1-ignored", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DAMASK=0 -DNO_ONE -DFAIL=1", "P2"),
    Run("c05-foreign-1-ignored-bootstrap", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DNO_ONE -DLOSTCK=1 -DFAIL=0", "P2"),
    Run(
        "c06-start-read-unfenced-1-not-blocked",
        "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DNO_STARTFENCE -DNO_ONEBLK -DFAIL=1",
        "P2",
    ),
    Run("c07-raise-off-the-lock-session", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DNO_RAISE -DFAIL=0", "P6"),
    Run("c08-release-unfenced", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DNO_RELFENCE -DFAIL=0", "P6"),
    Run("c09-epoch-reused", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DNO_OWNER -DLOSTCK=1 -DFAIL=0", "P6"),
    Run("c10-boundary-before-raise", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DEARLYSPOS -DFAIL=0", "P7"),
    Run("c11-bootstrap-boundary", "-DRELAYS=1 -DN=3 -DNO_BSPOS -DBOOT=1 -DCRASH=0 -DFAIL=0", "P7"),
    Run("c12-not-yet-visible-bootstrap", "-DRELAYS=1 -DN=3 -DVIS -DNO_VISWAIT -DBOOT=1 -DCRASH=0 -DFAIL=0", "P2"),
    Run("c13-rebuild-keeps-epoch-lost-commit", "-DRELAYS=1 -DN=3 -DLOSTCOMMIT -DNO_REB -DFAIL=1", "P1"),
    Run("c13-rebuild-keeps-epoch-rows-at-1", "-DRELAYS=1 -DN=3 -DREBUILD -DNO_REB -DCRASH=2 -DFAIL=1", "P1"),
    Run("idle-c14-other-relays-checkpoint", "-DNO_ANYCK", "P8", endless=True, model="idle"),
    Run("c15-sweep-does-not-park", "-DRELAYS=1 -DNO_SWPARK -DBOOT=1 -DFAIL=1", "P2"),
    Run("c16-unwritten-refusal-ignored", "-DRELAYS=1 -DNO_UNSETTLED -DCRASH=0 -DFAIL=1", "P2", short=True),
    Run("c17-blocked-read-before-1-becomes-3", "-DRELAYS=1 -DLISTFIRST -DFAIL=1", "P2"),
    Run("c18-claim-row-1-not-blocked", "-DRELAYS=1 -DCLAIMROW -DDELAYREL -DNO_ONEBLK -DFAIL=1", "P2"),
    Run("c19-retry-in-two-transactions", "-DRELAYS=1 -DNO_ONETX -DFAIL=1", "P2"),
    Run("c20-1-back-to-0", "-DRELAYS=1 -DB_REL0 -DFAIL=1", "P2"),
    Run("c21-person-clears-next_retry_at", "-DRELAYS=1 -DPERSON=1 -DPERSONNULL -DFAIL=1", "P2"),
    Run("c22-queued-counts-as-handed-over", "-DRELAYS=1 -DQUEUED -DCRASH=0 -DFAIL=2", "P2"),
    Run("c23-queued-does-not-block-tail", "-DRELAYS=1 -DQUEUED -DRECHECK -DNO_QBLOCK -DCRASH=0 -DFAIL=1", "P2"),
    Run(
        "c23-queued-does-not-block-tail-bootstrap",
        "-DRELAYS=1 -DN=3 -DQUEUED -DRECHECK -DNO_QBLOCK -DBOOT=1 -DCRASH=0 -DFAIL=0",
        "P2",
    ),
    Run("c24-position-past-in-flight", "-DRELAYS=1 -DB_CKPT -DFAIL=1", "P2"),
    Run("x-P1-no-sweep", "-DRELAYS=1 -DN=3 -DHID=2 -DB_NOSWEEP -DCRASH=0", "P1"),
    Run("x-P1-position-past-in-flight", "-DRELAYS=1 -DN=3 -DB_CKPT -DB_NOSWEEP -DFAIL=0", "P1", short=True),
    Run("x-P2-no-parking", "-DRELAYS=1 -DN=3 -DB_NOPARK -DCRASH=0", "P2"),
    Run("x-P2-late-refusal-not-strict", "-DRELAYS=1 -DN=3 -DLATEREF -DCRASH=0", "P2"),
    Run("x-P6-no-fence", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DB_NOFENCE -DFAIL=0", "P6", short=True),
    Run("x-P7-no-status-check", "-DRELAYS=1 -DN=3 -DB_NOREPLAY", "P7"),
    Run("x-P7-sweep-without-watermark", "-DRELAYS=1 -DN=3 -DB_STEAL -DCRASH=0", "P7", short=True),
    Run("idle-x-P8-own-write-counts", "-DB_OWN", "P8", endless=True, model="idle", short=True),
    Run("ok-two-events-crash", "-DRELAYS=1 -DN=2 -DAMASK=0 -DCRASH=1 -DFAIL=1", None, endless=True, short=True),
    Run("ok-transactions", "-DRELAYS=1 -DN=3 -DTX=2 -DFAIL=1 -DCRASH=1", None, endless=True, short=True),
    Run("ok-transactions-bootstrap", "-DRELAYS=1 -DN=3 -DTX=4 -DBOOT=1 -DFAIL=1", None, endless=True),
    Run("ok-transactions-visibility", "-DRELAYS=1 -DN=3 -DTX=2 -DVIS -DFAIL=1", None),
    Run("ok-waiting", "-DRELAYS=1 -DN=3 -DAMASK=0 -DWAITMEM -DFAIL=1 -DCRASH=1", None, endless=True, short=True),
    Run("ok-waiting-two-refusals", "-DRELAYS=1 -DN=3 -DAMASK=0 -DWAITMEM -DFAIL=2 -DCRASH=1", None),
    Run("ok-waiting-zombie", "-DLOSS=1 -DCRASH=0 -DP7WEAK -DN=3 -DAMASK=0 -DWAITMEM -DFAIL=1", None),
    Run("position-inside-a-transaction", "-DRELAYS=1 -DN=3 -DTX=2 -DB_TXPOS -DB_NOSWEEP -DFAIL=0", "P1", short=True),
    Run("letter-last", "-DRELAYS=1 -DN=3 -DB_LETTERLAST -DFAIL=2", "P1", short=True),
    Run("waiting-goes-at-once", "-DRELAYS=1 -DN=3 -DAMASK=0 -DWAITMEM -DB_WAITGO -DFAIL=1 -DCRASH=0", "P2", short=True),
    Run(
        "waiting-not-parked-behind-a-refusal",
        "-DRELAYS=1 -DN=4 -DAMASK=0 -DWAITMEM -DB_WAITON -DNO_UNWAIT -DFAIL=2 -DCRASH=0",
        "P1",
    ),
    Run(
        "waiting-not-parked-for-a-due-row", "-DRELAYS=1 -DN=3 -DAMASK=0 -DWAITMEM -DNO_UNWAIT -DFAIL=1 -DCRASH=1", "P1"
    ),
    Run("ok-fail-over", "-DRELAYS=1 -DFAILOVER -DCRASH=0 -DP7WEAK -DN=3 -DAMASK=0 -DFAIL=1", None, short=True),
    Run("ok-fail-over-four", "-DRELAYS=1 -DFAILOVER -DCRASH=0 -DP7WEAK -DFAIL=1", None),
    Run("ok-fail-over-crash", "-DRELAYS=1 -DFAILOVER -DCRASH=1 -DP7WEAK -DN=3 -DAMASK=0 -DFAIL=1", None),
    Run("ok-fail-over-two-relays", "-DFAILOVER -DCRASH=0 -DP7WEAK -DN=3 -DAMASK=0 -DFAIL=1", None),
    Run("ok-fail-over-by-offset", "-DRELAYS=1 -DFAILOVER -DFILEOFFSET -DCRASH=0 -DP7WEAK -DN=3 -DFAIL=1", None),
    Run(
        "ok-fail-over-claim-row", "-DRELAYS=1 -DFAILOVER -DCLAIMROW -DDELAYREL -DCRASH=0 -DP7WEAK -DN=3 -DFAIL=1", None
    ),
    Run("ok-position-in-a-file", "-DRELAYS=1 -DFILEPOS -DCRASH=2 -DN=3 -DFAIL=1", None),
    Run("ok-position-in-files-of-two-hosts", "-DFILEPOS -DCRASH=1 -DN=3 -DFAIL=1", None),
    Run(
        "ok-fail-over-position-in-a-file",
        "-DRELAYS=1 -DFAILOVER -DFILEPOS -DCRASH=0 -DP7WEAK -DN=3 -DAMASK=0 -DFAIL=1",
        None,
    ),
    Run("fail-over-fence-without-server", "-DFAILOVER -DNO_UUID -DCRASH=0 -DP7WEAK -DN=3 -DFAIL=0", "P6", short=True),
    Run("fail-over-fence-by-number", "-DFAILOVER -DNO_OWNER -DCRASH=0 -DP7WEAK -DN=3 -DFAIL=0", "P6"),
    Run(
        "fail-over-offset-of-the-other",
        "-DRELAYS=1 -DFAILOVER -DFILEOFFSET -DNO_FOREIGN -DB_NOSWEEP -DCRASH=0 -DP7WEAK -DN=3 -DFAIL=0",
        "P2",
        short=True,
    ),
    Run(
        "fail-over-file-of-the-other",
        "-DRELAYS=1 -DFAILOVER -DFILEPOS -DNO_FILEUUID -DCRASH=0 -DP7WEAK -DN=3 -DAMASK=0 -DFAIL=1",
        "P2",
        short=True,
    ),
    Run(
        "file-before-the-rows",
        "-DRELAYS=1 -DFILEPOS -DB_FILEFIRST -DB_NOSWEEP -DCRASH=1 -DN=3 -DFAIL=0",
        "P1",
        short=True,
    ),
]
