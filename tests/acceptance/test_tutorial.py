"""docs/tutorial.md as somebody new would do it: its blocks one after the other, on servers of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs.blocks import ROOT, Block, blocks
from tests.harness.shell import bash, commands, in_order

if TYPE_CHECKING:
    from tests.conftest import MakeKafka, MakeMySQL

PAGE = ROOT / "docs" / "tutorial.md"
PLACES = re.compile(r"^export CDC_OUTBOX_MYSQL__HOST=.*?^export ADMIN=\S+ MYSQL_PWD=\S+\n", re.MULTILINE | re.DOTALL)
CUT = "-- block {} --"


def script(run: list[Block], places: str) -> str:
    """All blocks as one script, for they share variables; a line before each tells where its output begins."""
    text = "".join(f"echo '{CUT.format(at)}'\n{block.text}" for at, block in enumerate(run))
    text, replaced = PLACES.subn(lambda _: places, text)
    assert replaced == 1, "the block that says where the servers are is another one than the test replaces"
    return f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{text}"


def test_every_step_works_and_shows_what_the_page_says(
    make_mysql: MakeMySQL, make_kafka: MakeKafka, tmp_path: Path
) -> None:
    mysql, kafka = make_mysql().endpoint, make_kafka().endpoint
    every = list(blocks(PAGE))
    run = [block for block in every if block.kind == "sh" and not block.marked]
    places = (
        f"export CDC_OUTBOX_MYSQL__HOST={mysql.host} CDC_OUTBOX_MYSQL__PORT={mysql.port}\n"
        f"export CDC_OUTBOX_KAFKA__BOOTSTRAP_SERVERS={kafka.bootstrap}\n"
        f"export ADMIN={mysql.user} MYSQL_PWD='{mysql.password}'\n"
    )
    done = bash(script(run, places), tmp_path, commands(tmp_path), 500, CDC_OUTBOX_HTTP__LISTEN="127.0.0.1:0")
    assert done.returncode == 0, done.stdout
    for at, block in enumerate(run):
        said = done.stdout.split(CUT.format(at) + "\n")[1].split(CUT.format(at + 1))[0]
        after = every[every.index(block) + 1] if block is not every[-1] else block
        if after.kind == "text":
            missing = in_order(said, after.text.splitlines())
            assert missing is None, f"line {after.line} of the page promises {missing!r}; it said:\n{said}"
    assert not (tmp_path / "tutorial").exists()
