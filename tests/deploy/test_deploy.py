"""Image, systemd unit and Kubernetes files: by their own tools where those are here, and against the settings."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cdc_outbox.config import Settings, load_settings
from cdc_outbox.ops.health import application
from cdc_outbox.ops.metrics import Metrics
from tests.deploy.tools import CONFIG, ROOT, run, tool
from tests.harness.process import RelayProcess
from tests.harness.world import World

KUBERNETES = CONFIG / "kubernetes"
UNIT = CONFIG / "systemd" / "cdc-outbox@.service"
PATHS = {route.path for route in application(Metrics("x"), lambda: (True, "")).routes}  # type: ignore[attr-defined]
SHUTDOWN = Settings.model_fields["limits"].default.shutdown_timeout


# -- Docker -----------------------------------------------------------------------------------------------------


def test_the_image_is_slim_runs_as_nobody_in_particular_and_says_whether_it_lives() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    last = text.split("\nFROM ")[-1]
    assert re.search(r"python:3\.\d+-slim", last)
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user is not None and "0" not in user.groups()
    assert "HEALTHCHECK" in last and "/healthz" in last
    assert "EXPOSE 9187" in last


def test_hadolint_finds_nothing() -> None:
    run(Path(sys.executable).with_name("hadolint"), "Dockerfile")


# -- systemd ----------------------------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit as it would be installed, its program being one that this machine has."""
    text = UNIT.read_text("utf-8").replace("/opt/cdc-outbox/bin/cdc-outbox", "/bin/true")
    path = tmp_path / "cdc-outbox@orders.service"
    path.write_text(text)
    return path


def test_systemd_takes_the_unit(unit: Path) -> None:
    assert run(tool("systemd-analyze"), "verify", "--man=no", unit) == ""


def test_systemd_finds_the_unit_little_exposed(unit: Path) -> None:
    run(tool("systemd-analyze"), "security", "--offline=yes", "--threshold=20", unit)


def test_the_unit_stops_after_the_relay_and_restarts_what_restarting_helps() -> None:
    lines = [line for line in UNIT.read_text("utf-8").splitlines() if "=" in line and not line.startswith("#")]
    values = dict(line.split("=", 1) for line in lines)
    assert float(values["TimeoutStopSec"]) > SHUTDOWN
    assert values["Type"] == "notify" and "WatchdogSec" in values
    assert values["RestartPreventExitStatus"].split() == ["2", "3", "5"]
    assert values["ExecStart"].endswith("--config /etc/cdc-outbox/%i.yaml start")


def test_systemd_hears_when_the_relay_leads_lives_and_stops(world: World, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        relay = RelayProcess(world.config(), NOTIFY_SOCKET=manager.getsockname(), WATCHDOG_USEC="200000")
        try:
            heard: list[str] = []

            def hear_until(text: str) -> None:
                while text not in heard:
                    heard.extend(manager.recv(1000).decode().splitlines())

            hear_until("READY=1")
            relay.wait_for("leader")
            hear_until("STATUS=leader")
            heard.clear()
            hear_until("WATCHDOG=1")
            assert relay.stop() == 0
            hear_until("STOPPING=1")
        finally:
            relay.kill()


def test_a_refusal_is_not_reported_as_started(world: World, tmp_path: Path) -> None:
    world.execute("DROP TABLE cdc_outbox_checkpoint")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        relay = RelayProcess(world.config(), NOTIFY_SOCKET=manager.getsockname())
        assert relay.wait() == 2
        assert manager.recv(1000).decode().startswith("STOPPING=1")


# -- Kubernetes -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(run(tool("kubectl"), "kustomize", KUBERNETES)))


def of_kind(built: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [one for one in built if one["kind"] == kind]
    return found


def test_every_object_is_what_its_schema_says(built: list[dict[str, Any]]) -> None:
    assert {one["kind"] for one in built} == {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service"}
    for one in built:
        kubernetes_validate.validate(one, "1.33", strict=True)


def test_everything_selects_the_relays_pods(built: list[dict[str, Any]]) -> None:
    labels = of_kind(built, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels
    assert of_kind(built, "Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert of_kind(built, "Service")["spec"]["selector"] == labels
    assert of_kind(built, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels


def test_the_pods_fit_the_relay(built: list[dict[str, Any]], tmp_path: Path) -> None:
    deployment, settings_map = of_kind(built, "Deployment"), of_kind(built, "ConfigMap")
    assert deployment["spec"]["replicas"] == 2
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    secret = tmp_path / "mysql-password"
    secret.write_text("secret\n")
    file = tmp_path / "relay.yaml"
    file.write_text(settings_map["data"]["relay.yaml"].replace("/run/secrets/cdc-outbox", str(tmp_path)))
    settings = load_settings(file, {})
    assert settings.mysql.password.get_secret_value() == "secret"
    assert settings.http is not None
    (port,) = container["ports"]
    assert settings.http.address == ("0.0.0.0", port["containerPort"])
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness", "startup")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "liveness": "/healthz",
        "readiness": "/readyz",
        "startup": "/healthz",
    }
    assert {probe["path"] for probe in probes.values()} <= PATHS
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert pod["terminationGracePeriodSeconds"] > settings.limits.shutdown_timeout
    assert container["args"] == ["--config", "/etc/cdc-outbox/relay.yaml", "start"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"settings": "/etc/cdc-outbox", "secrets": "/run/secrets/cdc-outbox"}.items() <= mounts.items()
    named = {volume["name"]: volume for volume in pod["volumes"]}
    assert named["settings"]["configMap"]["name"] == settings_map["metadata"]["name"]


def test_the_pods_may_do_nothing_but_relay(built: list[dict[str, Any]]) -> None:
    pod = of_kind(built, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert not pod["automountServiceAccountToken"] and not pod["enableServiceLinks"]
    limits = container["securityContext"]
    assert limits["readOnlyRootFilesystem"] and not limits["allowPrivilegeEscalation"]
    assert limits["capabilities"] == {"drop": ["ALL"]}


def test_no_secret_stands_in_a_file() -> None:
    for file in KUBERNETES.glob("*.yaml"):
        assert "kind: Secret" not in file.read_text("utf-8")
    assert "password" not in json.dumps(yaml.safe_load((KUBERNETES / "deployment.yaml").read_text("utf-8")))
