"""The list of server versions says what the product's own checks say, and names tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_outbox.mysql.server_checks import Variables, server_kind
from tests.matrix.__main__ import main
from tests.matrix.servers import Listed, listed_servers

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("listed", listed_servers(), ids=lambda listed: listed.name)
def test_each_version_is_judged_as_listed(listed: Listed) -> None:
    tag = listed.image.partition(":")[2]
    numbers = ".".join([*tag.split("."), "9", "9"][:3])
    version = f"{numbers}-MariaDB" if listed.mariadb else numbers
    finding = server_kind(Variables({"version": version}), version)
    assert (finding.level == "error") == (listed.outcome == "refused")
    assert listed.because in finding.why
    assert all((REPOSITORY / path).exists() for path in listed.tests)


def test_every_version_that_users_run_is_listed() -> None:
    names = [listed.name for listed in listed_servers()]
    assert len(set(names)) == len(names)
    assert {"mysql-5.7", "mysql-8.0", "mysql-8.4", "mysql-9", "mariadb-10.6", "mariadb-10.11"} <= set(names)


def test_the_command_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "mariadb-10.11" in capsys.readouterr().out
    assert main(["oracle-23"]) == 2
    assert "mysql-8.4" in capsys.readouterr().err
