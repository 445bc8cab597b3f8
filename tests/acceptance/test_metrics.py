"""What a dashboard, a probe and a trace see of a running relay."""

from __future__ import annotations

import http.server
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from cdc_outbox.testing.services.endpoint import free_port
from tests.harness.process import RelayProcess
from tests.harness.world import World, wait_until

if TYPE_CHECKING:
    from tests.conftest import MakeKafka

TOO_LARGE = '{"pad": "' + "x" * 3000 + '"}'
SMALL = {"max_record_bytes": "2KiB", "batch_bytes": "2KiB"}


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scrape(port: int) -> dict[tuple[str, str], float]:
    """(name, the one label besides relay) -> value."""
    _, text = get(port, "/metrics")
    return {
        (sample.name, next((v for k, v in sample.labels.items() if k not in {"relay", "le"}), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("le", "+Inf") == "+Inf"
    }


def test_every_metric_says_what_happened(world: World) -> None:
    port = free_port()
    world.start(kafka=SMALL, http={"listen": f"127.0.0.1:{port}"})
    bad = world.insert("a1", payload=TOO_LARGE, max_retries=2)
    after = [world.insert("a1") for _ in range(3)]
    world.wait_sent(*after, *(world.insert("a2") for _ in range(5)))
    late = world.insert("a3", payload=TOO_LARGE, max_retries=1000)
    parked = world.insert("a3")
    wait_until(lambda: world.row(parked)["next_retry_at"] is not None, "the follower parked")
    wait_until(lambda: scrape(port)["cdc_outbox_parked_events", ""] == 1, "the tables counted")
    seen = scrape(port)
    assert seen["cdc_outbox_events_total", "sent"] == 8
    assert seen["cdc_outbox_events_total", "dead"] == 1
    assert seen["cdc_outbox_events_total", "failed"] >= 3
    assert seen["cdc_outbox_events_total", "parked"] >= 4
    assert seen["cdc_outbox_events_total", "skipped"] == 0
    assert seen["cdc_outbox_retries_total", ""] >= 2
    assert seen["cdc_outbox_delivery_seconds_count", ""] == 5, "swept and parked rows have no commit time"
    assert 0 < seen["cdc_outbox_delivery_seconds_sum", ""] < 300
    assert seen["cdc_outbox_dead_events", ""] == 1
    assert seen["cdc_outbox_blocked_aggregates", ""] == 1
    assert seen["cdc_outbox_leader", ""] == 1
    assert (seen["cdc_outbox_hold", "kafka"], seen["cdc_outbox_hold", "mysql"]) == (0, 0)
    assert seen["cdc_outbox_reordered_total", ""] == 0
    assert seen["cdc_outbox_alerts_total", "event_dead"] == 1
    assert seen["cdc_outbox_alerts_total", "event_failed"] >= 3
    assert seen["cdc_outbox_lag_seconds", ""] < 60
    assert seen["cdc_outbox_binlog_retention_left_seconds", ""] > 3600
    assert world.row(bad)["status"] == 3 and world.row(late)["status"] in {1, 3}


def test_a_hold_is_not_ready_and_a_standby_is(make_world: Callable[..., World], make_kafka: MakeKafka) -> None:
    broker = make_kafka()
    world = make_world(kafka=broker.endpoint)
    ports = free_port(), free_port()
    leader = world.start(http={"listen": f"127.0.0.1:{ports[0]}"})
    standby = world.start(http={"listen": f"127.0.0.1:{ports[1]}"}, wait_for="standby")
    world.wait_sent(world.insert("a1"))
    assert (get(ports[0], "/readyz"), get(ports[1], "/readyz")) == ((200, "leader\n"), (200, "standby\n"))
    assert scrape(ports[1])["cdc_outbox_leader", ""] == 0

    broker.pause()
    event_id = world.insert("a1")
    wait_until(lambda: get(ports[0], "/readyz") == (503, "holding: kafka\n"), "a hold is not ready")
    assert get(ports[0], "/healthz") == (200, "ok\n")
    assert get(ports[1], "/readyz")[0] == 200
    held = scrape(ports[0])
    assert held["cdc_outbox_hold", "kafka"] == 1
    wait_until(lambda: scrape(ports[0])["cdc_outbox_lag_seconds", ""] > 1, "the lag grows while holding")

    broker.resume()
    world.wait_sent(event_id)
    wait_until(lambda: get(ports[0], "/readyz") == (200, "leader\n"), "ready again")
    assert scrape(ports[0])["cdc_outbox_hold", "kafka"] == 0
    wait_until(lambda: scrape(ports[0])["cdc_outbox_lag_seconds", ""] == 0, "no lag is left")
    assert leader.stop() == 0
    wait_until(lambda: get(ports[1], "/readyz") == (200, "leader\n"), "the standby leads")
    assert standby.stop() == 0


@contextmanager
def collector() -> Iterator[tuple[int, list[ExportTraceServiceRequest]]]:
    """What an OpenTelemetry collector does with OTLP over HTTP: take it."""
    requests: list[ExportTraceServiceRequest] = []

    class Taker(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Taker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, requests
        finally:
            server.shutdown()
            thread.join()


def test_a_publish_is_linked_to_the_trace_of_its_row(world: World) -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    world.execute("ALTER TABLE outbox_event ADD COLUMN trace VARCHAR(64) NULL")
    config = world.config(outbox={"columns": {"headers": {"traceparent": "trace"}}})
    with collector() as (port, requests):
        environ = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
        relay = RelayProcess(config, **environ)
        try:
            relay.wait_for("leader")
            traced = world.insert("a1", trace=f"00-{trace}-{span}-01")
            world.wait_sent(traced, world.insert("a2"))
            assert relay.stop() == 0
        finally:
            relay.kill()
    spans = [one for r in requests for resource in r.resource_spans for s in resource.scope_spans for one in s.spans]
    (found,) = spans
    assert (found.links[0].trace_id.hex(), found.links[0].span_id.hex()) == (trace, span)
    assert traced in {one.value.string_value for one in found.attributes}
    assert found.end_time_unix_nano > found.start_time_unix_nano
