"""The command behind scripts/services: start, stop, status, env, and run -- COMMAND."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence

from cdc_outbox.testing.services import background
from cdc_outbox.testing.services.child import end_all, interrupted_by_signals
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint
from cdc_outbox.testing.services.pair import start_pair
from cdc_outbox.testing.services.providers import KAFKA_VARIABLE, MYSQL_VARIABLE, NoService

USAGE = """\
usage: scripts/services COMMAND
  start            start MySQL and Kafka and leave them running
  stop             stop them; their databases and topics are gone
  status           say where they run (exit 0), or that they do not (exit 1)
  env              print the variables that tests and the demo look for: eval "$(scripts/services env)"
  run -- COMMAND   start both where none run, run COMMAND with those variables, stop what was started
Downloads are kept in ~/.cache/cdc-outbox (or $XDG_CACHE_HOME/cdc-outbox), about 600 MB; it can be removed any time.
"""
NOT_RUNNING = "Not running. Start them with: scripts/services start"


def say(text: str) -> None:
    sys.stderr.write(text + "\n")  # in one piece: two threads speak


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["run", "--", *command] if command:
            return run(command)
        case ["serve"]:  # what `start` runs in the background
            return background.serve(say)
        case [name] if name in COMMANDS:
            return COMMANDS[name]()
        case ["-h" | "--help"]:
            print(USAGE, end="")
            return 0
    say(USAGE.rstrip())
    return 2


def start() -> int:
    pair = background.running()
    if pair is not None:
        say("Running already.")
        return status()
    background.start(say)
    say('Both run until `scripts/services stop`. For a shell: eval "$(scripts/services env)"')
    return 0


def stop() -> int:
    say("Stopped." if background.stop() else "Not running.")
    return 0


def status() -> int:
    pair = background.running()
    if pair is None:
        say(NOT_RUNNING)
        return 1
    mysql, kafka = MySQLEndpoint.parse(pair["mysql"]), KafkaEndpoint(pair["kafka"])
    healthy = True
    for name, endpoint in (("MySQL", mysql), ("Kafka", kafka)):
        answers = endpoint.answers()
        healthy = healthy and answers
        print(f"{name}  {endpoint.address}  {'answers' if answers else 'does not answer'}")
    return 0 if healthy else 1


def show_environment() -> int:
    pair = background.running()
    if pair is None:
        say(NOT_RUNNING)
        return 1
    for name, value in ((MYSQL_VARIABLE, pair["mysql"]), (KAFKA_VARIABLE, pair["kafka"])):
        print(f"export {name}={shlex.quote(value)}")
    return 0


def run(command: Sequence[str]) -> int:
    """Run `command` beside a pair; its exit code, 128 + the signal when one ended it."""
    with interrupted_by_signals():
        pair = start_pair(say)
    try:
        child = subprocess.Popen(list(command), env={**os.environ, **pair.environ})
    except OSError as error:
        say(f"{command[0]} cannot be run: {error.strerror}")
        return 127
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command too, which decides
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: child.send_signal(number))
    code = child.wait()
    return code if code >= 0 else 128 - code


COMMANDS = {"start": start, "stop": stop, "status": status, "env": show_environment}

if __name__ == "__main__":
    try:
        outcome = main(sys.argv[1:])
    except NoService as page:
        say(f"\n{page}")
        outcome = 2
    except KeyboardInterrupt:
        say("Interrupted; stopping what was started.")
        outcome = 130
    end_all()
    raise SystemExit(outcome)
