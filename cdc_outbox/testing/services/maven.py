"""Jars fetched by Maven, as the user has set it up: once, into the cache."""

from __future__ import annotations

import shutil
from pathlib import Path

from cdc_outbox.testing.services.cache import fetched, growing
from cdc_outbox.testing.services.child import finish
from cdc_outbox.testing.services.system_packages import install_as_root
from cdc_outbox.testing.services.words import Say, Unavailable

FETCH_DEADLINE = 600.0


def maven_jars(name: str, pom: str, what: str, say: Say) -> Path:
    """The folder of the jars that the text `pom` names, kept in the cache as `name`. Raises Unavailable."""
    return fetched(name, lambda folder: _fetch(folder, pom, what, say)) / "libs"


def _fetch(folder: Path, pom: str, what: str, say: Say) -> None:
    if shutil.which("mvn") is None:
        install_as_root(["maven"], "fetching jars needs Maven", say)
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Maven (mvn) is not installed")
    (folder / "pom.xml").write_text(pom)
    say(f"Downloading {what}, once")
    repository = folder / "repository"  # not ~/.m2: nobody else there needs these jars
    command = [maven, "-q", "-B", "-f", str(folder / "pom.xml"), f"-Dmaven.repo.local={repository}"]
    with growing(repository, "downloading", say):
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/libs"]
        done = finish([*command, *copy], deadline=FETCH_DEADLINE)
    shutil.rmtree(repository, ignore_errors=True)
    if done.returncode or not list(folder.glob("libs/*.jar")):
        errors = [line.removeprefix("[ERROR]").strip() for line in done.stdout.splitlines() if "[ERROR]" in line]
        reason = next((error for error in errors if error), done.stderr.strip()[-300:] or "no reason given")
        raise Unavailable(f"Maven failed: {reason}")
