"""docs/benchmarks.md: the tables, and what was measured and how. Pure: parts in, text out."""

from __future__ import annotations

from collections.abc import Mapping

from bench.debezium import SETTINGS
from bench.figures import FIGURES, Results
from bench.goals import goals
from bench.inserts import THREADS
from bench.latency import WARM_UP
from bench.plot import DRAIN_PLOT, LATENCY_PLOT, drain_plot, latency_plot
from bench.record import Part, results
from bench.tables import (
    drain_table,
    goal_table,
    grid,
    idle_table,
    latency_table,
    million_table,
    noise_table,
    payload_table,
    transaction_table,
    writers_table,
)
from cdc_outbox.testing.services.debezium import DEBEZIUM_VERSION

_IN_THE_WAY = """\
Where the drain falls short, the CPU columns below say why: the relay, MySQL and the broker use up all cores together.
MySQL's part is the outcome that is written back, an UPDATE of each row with its index entry, which Debezium does not do
at all; its virtual machine also gets quicker as it warms up, as its second half of a million shows. The relay's part is
Python between what is compiled (the binlog, JSON, librdkafka): the ledger, records and headers, acknowledgements, the
texts of SQL. In a row of another table most is the socket's: decrypting what comes is dearer than passing over it
([where a microsecond goes](profile.md)).
"""

_HEAD = """\
# Benchmarks

Made by `scripts/bench --write`. Do not edit the figures: run it again; `scripts/bench page` renders this page from
[benchmarks.json](benchmarks.json) without measuring. MySQL, Kafka, all sides, writers and consumers share one machine,
so read the ratios first: they carry over to another machine better than the figures do. Sides that are compared have
run one after the other in the same run.

Pages of their own: [the commands on a large table, and restarts](benchmarks-operate.md), and
[the application's half](benchmarks-application.md).
"""

_SIDES = """\
## Who is compared

Every side gets the same events, in a database and a topic of its own, and what it needs to reach them; the rest is at
its defaults unless its title says otherwise.

- **cdc-outbox**: as shipped, with the `fast` extra and the compiled decoder; the variants change
  [what sides.py says](../bench/sides.py) and nothing else.
- **Debezium** {debezium}: the outbox event router in Kafka Connect standalone. It writes nothing back into the table:
  from the table alone nobody sees which events are out.
  - by default: told what to relay and no more:
    {worker},
    {outbox},
    and {java}, as Kafka Connect's own start script
  - tuned for throughput: also {throughput},
    with {throughput_java}
  - tuned for latency: also {latency}
- **polling relay**: the one that is usually written first ([polling_relay.py](../bench/polling_relay.py)):
  `SELECT … FOR UPDATE SKIP LOCKED LIMIT 500`, produce, flush, `UPDATE … status = 2`, COMMIT; a pause of 100 ms when it
  has found nothing. No retries, no dead letters, no order across a failure.
- **mysql-replication + kafka-python**: the loop that is usually written next
  ([handwritten_relay.py](../bench/handwritten_relay.py)), with the same gaps.
"""

_DRAIN = """\
## Emptying a backlog

{events:,} events, each in a transaction of its own, about 400 bytes of nested JSON, 5,000 aggregates; written while the
side was away. Measured from the moment that it is ready until the last row says *sent*: reading, publishing with acks
from all replicas, writing the outcome back; for Debezium until the last record is in the topic. Starting its virtual
machine is left out.

- All but the polling relay have run before, and read the backlog from the binlog, from their position on. cdc-outbox
  looks up each row's status first, as it does after every start.
- CPU is user and system time of the side, peak RSS is VmHWM; binlog is what MySQL's grew by meanwhile.
"""

_MILLION = """\
## A million events behind

The same with {events:,} events. The second half is what comes after a warm-up of half a million events.
"""

_LATENCY = """\
## From COMMIT to the consumer

Single-row transactions at a fixed rate from 8 connections, however long the answers take. Measured from the return of
COMMIT until a consumer in another process has the record; every side has sent an event before, and the first
{warm_up:g} s are left out. No event was lost.
*Deadlocks* are INSERTs of the service that MySQL rolled back (error 1213); the service tried them again.
"""

_IDLE = """\
## With nothing to do

Counters of the side's process and of the server over {seconds:.0f} s, with no other client.
"""

_WRITERS = """\
## What a service's inserts lose

Single-row INSERTs in autocommit, from {threads} connections, as fast as the answers come, for {seconds:g} s: alone, and
with a relay beside them on the same cores. *Errors* are INSERTs that MySQL refused; the service tried them again.
"""

_NOISE = """\
## Traffic of other tables

The default side empties {events:,} events, and the same with {times} rows of another table written for each, every one
in a transaction of its own: {share:.0f} % noise.
"""

_PAYLOADS = """\
## Larger payloads

The default side, transactions of one row; larger payloads are orders with more lines. Peak RSS is bounded by
`limits.max_in_flight_bytes`.
"""

_TRANSACTIONS = """\
## Larger transactions

The default side empties {events:,} events of about 400 bytes, written in transactions of so many rows.
"""

_TAIL = """\
## Run it yourself

    scripts/bench --help
    scripts/bench --write                    # everything, about 20 minutes; wants a quiet machine
    scripts/bench drain --rounds 3 --write   # one part; the page keeps the others
    scripts/bench page                       # the page and its plots again, from benchmarks.json
    scripts/bench --quick                    # two minutes; fails when a ratio is below its floor

MySQL and Kafka are found or started as for `scripts/test`; Debezium is fetched by Maven, once. While a backlog is
written, `sync_binlog` and `innodb_flush_log_at_trx_commit` of the server are relaxed; before anything is measured they
are set back.
"""


def page(parts: Mapping[str, Part]) -> str:
    """The text of docs/benchmarks.md."""
    found = results(parts)
    asked = goals(found)
    sections = [_HEAD, *_origin(parts)]
    if asked:
        sections += ["## What was to be reached", goal_table(asked), _IN_THE_WAY]
    sections += [_sides(), *_measured(found), _TAIL]
    return "\n\n".join(section.strip("\n") for section in sections) + "\n"


def plots(parts: Mapping[str, Part]) -> dict[str, str]:
    """File name -> SVG, of what was measured."""
    found = results(parts)
    drawn = {}
    if found.drain:
        drawn[DRAIN_PLOT] = drain_plot(found.drain)
    if found.latency:
        drawn[LATENCY_PLOT] = latency_plot(found.latency)
    return drawn


def _origin(parts: Mapping[str, Part]) -> list[str]:
    """When, by which command and on which machine: once for all parts that have these in common."""
    origins: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in FIGURES:
        if name in parts:
            part = parts[name]
            key = (("date", part.made.isoformat()), ("command", f"`{part.command}`"), *part.machine)
            origins.setdefault(key, []).append(name)
    tables = []
    for facts, names in origins.items():
        own = [("parts", ", ".join(names))] if len(origins) > 1 else []
        tables.append(grid(["", ""], [*own, *facts]))
    return tables


def _sides() -> str:
    def link(name: str) -> str:
        return f"[{name}](../bench/{SETTINGS.name}/debezium-{name})"

    files = {name: link(f"{name}.properties") for name in ("worker", "outbox", "throughput", "latency")}
    java = {"java": link("connect.options"), "throughput_java": link("throughput.options")}
    return _SIDES.format(debezium=DEBEZIUM_VERSION, **files, **java)


def _measured(found: Results) -> list[str]:
    sections: list[str] = []
    if found.drain:
        plot = f"![Events a second of each side]({DRAIN_PLOT})"
        sections += [_DRAIN.format(events=found.drain[0].events), drain_table(found.drain), plot]
    if found.million:
        sections += [_MILLION.format(events=found.million[0].events), million_table(found.million)]
    if found.latency:
        plot = f"![From COMMIT to the consumer, by side and rate]({LATENCY_PLOT})"
        sections += [_LATENCY.format(warm_up=WARM_UP), latency_table(found.latency), plot]
    if found.idle:
        sections += [_IDLE.format(seconds=found.idle[0].seconds), idle_table(found.idle)]
    if found.writers:
        text = _WRITERS.format(threads=THREADS, seconds=found.writers[0].seconds)
        sections += [text, writers_table(found.writers)]
    if found.noise:
        times = max(one.noise for one in found.noise)
        text = _NOISE.format(events=found.noise[0].events, times=times, share=100 * times / (times + 1))
        sections += [text, noise_table(found.noise)]
    if found.payloads:
        sections += [_PAYLOADS, payload_table(found.payloads)]
    if found.transactions:
        text = _TRANSACTIONS.format(events=found.transactions[0].events)
        sections += [text, transaction_table(found.transactions)]
    return sections
