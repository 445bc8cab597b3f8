"""Debian and Ubuntu packages without installing them: fetched from the machine's own mirror, only unpacked.

apt runs with a state of its own, so that no root is needed and the machine's package lists stay as they are.
The mirror's address, its proxy and its keys come from the machine's own apt settings.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_outbox.testing.services.cache import growing
from cdc_outbox.testing.services.child import finish
from cdc_outbox.testing.services.words import Say, Unavailable

FETCH_DEADLINE = 600.0
"""Seconds that one apt run may take."""
_APT = Path("/etc/apt")
_KEYRINGS = ("debian-archive-keyring.gpg", "debian-archive-keyring.pgp", "ubuntu-archive-keyring.gpg")


@dataclass(frozen=True)
class Mirror:
    """What the machine's own apt sources say. signed_by: a keyring file, or None for apt's trusted ones."""

    uri: str
    signed_by: str | None


def machine_mirror(folder: Path = _APT) -> Mirror:
    """The first package archive that apt is set to, security archives left out. Raises Unavailable."""
    for mirror in _mirrors(folder):
        if "security" not in mirror.uri:
            return mirror
    raise Unavailable(f"no package archive is configured in {folder}")


def unpack_closure(names: Sequence[str], suite: str, components: str, into: Path, say: Say) -> None:
    """Unpack the first of `names` that `suite` has, and all that it depends on, libc included, below `into`.

    Raises Unavailable when apt is not there, finds none of the names, or cannot reach its mirror.
    """
    for tool in ("apt-get", "apt-config", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Unavailable(f"this needs {tool}, which is not here")
    work = into / "apt"
    environ = _private_apt(work, suite, components)
    try:
        say("reading the package lists of your apt mirror")
        _run(["apt-get", "-qq", "update"], environ)
        name = next((name for name in names if _known(name, environ)), None)
        if name is None:
            raise Unavailable(f"the package archive has none of {', '.join(names)} in {suite}")
        say(f"downloading {name} and what it needs, up to 65 MB, once")
        with growing(work / "cache", "downloading", say):
            _run(["apt-get", "-qq", "--yes", "--download-only", "install", name], environ)
        archives = sorted((work / "cache/archives").glob("*.deb"))
        say(f"unpacking {len(archives)} packages")
        for archive in archives:
            _run(["dpkg-deb", "--extract", str(archive), str(into)], environ)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _private_apt(work: Path, suite: str, components: str) -> dict[str, str]:
    """Write settings, sources and an empty state below `work`; the environment that makes apt use them."""
    for part in ("state/lists/partial", "cache/archives/partial"):
        (work / part).mkdir(parents=True)
    (work / "status").touch()
    mirror = machine_mirror()
    keyring = mirror.signed_by or next(
        (str(path) for path in (Path("/usr/share/keyrings") / name for name in _KEYRINGS) if path.exists()),
        None,
    )
    signed = f"[signed-by={keyring}] " if keyring else ""
    (work / "sources.list").write_text(f"deb {signed}{mirror.uri} {suite} {components}\n")
    network = finish(["apt-config", "dump", "Acquire"], deadline=30).stdout
    settings = work / "apt.conf"
    settings.touch(mode=0o600)  # a proxy's address may hold a password
    settings.write_text(
        network
        + f'Dir::State "{work}/state";\nDir::State::status "{work}/status";\nDir::Cache "{work}/cache";\n'
        + f'Dir::Etc::sourcelist "{work}/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
        + 'Dir::Etc::preferences "/dev/null";\nDir::Etc::preferencesparts "/dev/null";\n'
        + 'Dir::Etc::main "/dev/null";\nDir::Etc::parts "/dev/null";\n'
        + 'Acquire::Languages "none";\nAPT::Install-Recommends "false";\nAPT::Sandbox::User "";\n'
        + 'APT::Get::AllowUnauthenticated "false";\n'
    )
    return {**os.environ, "APT_CONFIG": str(settings), "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def _known(name: str, environ: dict[str, str]) -> bool:
    shown = finish(["apt-cache", "show", name], deadline=60, environ=environ)
    return shown.returncode == 0 and bool(shown.stdout.strip())


def _run(command: list[str], environ: dict[str, str]) -> None:
    done = finish(command, deadline=FETCH_DEADLINE, environ=environ)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise Unavailable(f"{command[0]} failed: {lines[0] if lines else f'exit code {done.returncode}'}")


def _mirrors(folder: Path) -> Iterator[Mirror]:
    """Both forms of apt sources: stanzas (*.sources) and lines (*.list)."""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    for path in files:
        if path.suffix == ".sources" and path.is_file():
            for stanza in re.split(r"\n\s*\n", path.read_text(errors="replace")):
                keys = dict(re.findall(r"(?m)^([\w-]+):[ \t]*(.*?)[ \t]*$", stanza))
                if keys.get("URIs") and "deb" in keys.get("Types", "").split() and keys.get("Enabled") != "no":
                    signed = keys.get("Signed-By", "")
                    yield Mirror(keys["URIs"].split()[0], signed if signed.startswith("/") else None)
        elif path.suffix == ".list" and path.is_file():
            for line in path.read_text(errors="replace").splitlines():
                found = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s", line)
                if found:
                    signed_by = re.search(r"signed-by=(\S+)", found[1] or "")
                    yield Mirror(found[2], signed_by[1] if signed_by else None)


def release() -> tuple[str, str]:
    """(ID, VERSION_CODENAME) of this Linux, ("debian", "bookworm") for example; empty where unknown."""
    try:
        keys = platform.freedesktop_os_release()
    except OSError:
        return "", ""
    return keys.get("ID", ""), keys.get("VERSION_CODENAME", "")
