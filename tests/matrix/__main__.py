"""`python -m tests.matrix [NAME…]`: the tests of each server version in Docker, one after the other; --list names them.

A CI takes one name a job. Exit 1 where a version did not do what servers.yaml says of it.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.matrix.servers import Listed, listed_servers

NAME_VARIABLE = "CDC_OUTBOX_MATRIX_SERVER"


def main(names: list[str]) -> int:
    known = {server.name: server for server in listed_servers()}
    if names == ["--list"]:
        print("\n".join(known))
        return 0
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such server: {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    results = {name: run(known[name]) for name in names or known}
    for name, code in results.items():
        print(f"{name:15} {known[name].outcome:8} {'as listed' if code == 0 else f'NOT SO (pytest exit {code})'}")
    return 1 if any(results.values()) else 0


def run(server: Listed) -> int:
    """The exit code of its tests. Servers are always its image: addresses in the environment are left out."""
    environ = {name: value for name, value in os.environ.items() if name != "CDC_OUTBOX_TEST_MYSQL_URL"}
    environ |= {server.image_variable: server.image, NAME_VARIABLE: server.name}
    print(f"-- {server.name}: {server.image}", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *server.tests], env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
