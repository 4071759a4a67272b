"""The Helm chart: rendered by Helm where it is, checked against Kubernetes' own schemas, and read as data.

Helm v3 builds from the Go module proxy (``go install helm.sh/helm/v3/cmd/helm@v3.18.4``), which takes minutes, so it is
not asked for; ``TACET_HELM`` names one that is not on the path. ``pip install kubernetes-validate`` brings the schemas.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from connectors.cli.main import tacet
from stream.settings import Settings
from tests.support.patience import PATIENCE
from tests.support.verb_tree import subcommands

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "tacet"
VALIDATE = shutil.which("kubernetes-validate", path=f"{Path(sys.prefix) / 'supply' / 'bin'}:{os.environ['PATH']}")
GIVEN = [
    "--kube-version", "1.33.0", "--set", "kafka.servers=kafka:9093",
    "--set", "kafka.environment.TACET_KAFKA_PASSWORD_FILE=/run/tacet/password", "--set", "worker.secret=worker",
]  # fmt: skip


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = os.environ.get("TACET_HELM") or shutil.which("helm")
    if command is None:
        pytest.skip("helm is not on this machine; it builds from the Go module proxy, and TACET_HELM names it")
    return subprocess.run([command, *words], capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chart")
    (folder / "policy.toml").write_text("# a policy\n")
    done = helm("template", "tacet", CHART, *GIVEN, "--set-file", f"policy={folder / 'policy.toml'}")
    assert done.returncode == 0, done.stderr
    (folder / "all.yaml").write_text(done.stdout)
    return folder / "all.yaml"


@pytest.fixture
def objects(rendered: Path) -> dict[str, dict[str, Any]]:
    """What is made, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(rendered.read_text())}


def pods(objects: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for kind in ("Deployment", "StatefulSet"):
        yield objects[kind]["spec"]["template"]["spec"]


def test_helm_finds_nothing_to_say_of_it() -> None:
    done = helm("lint", "--strict", CHART, *GIVEN[2:], "--set", "policy=x")
    assert done.returncode == 0, done.stdout


def test_it_is_what_kubernetes_understands(rendered: Path) -> None:
    if VALIDATE is None:
        pytest.skip("kubernetes-validate is not on this machine; 'pip install kubernetes-validate' brings it")
    for version in ("1.29", "1.37"):
        done = subprocess.run(
            [VALIDATE, "--strict", "-k", version, rendered],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("lacks", "problem"), [("policy", "must be given"), ("kafka.servers", "must name the brokers")]
)
def test_what_has_to_be_given_is_asked_for(lacks: str, problem: str) -> None:
    given = {"policy": "x", "kafka.servers": "kafka:9092"} | {lacks: ""}
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    done = helm("template", "tacet", CHART, *GIVEN[:2], *words)
    assert (done.returncode, problem in done.stderr) == (1, True)


def test_nothing_runs_as_root_or_writes_to_its_image(objects: Any) -> None:
    for pod in pods(objects):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in (*pod["initContainers"], *pod["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
        assert all(each["emptyDir"]["medium"] == "Memory" for each in pod["volumes"] if "emptyDir" in each)


def test_a_command_its_options_and_settings_exist(objects: Any) -> None:
    known = {f"TACET_{field.upper()}" for field in Settings.model_fields}
    for pod in pods(objects):
        (container,) = pod["containers"]
        verb, *words = container["args"]
        command: click.Command = subcommands(tacet)[verb]
        options = {word for word in words if word.startswith("--")}
        assert options <= {option for parameter in command.params for option in parameter.opts}
        assert {parameter.opts[-1] for parameter in command.params if parameter.required} <= options
        assert {each["name"] for each in container["env"]} <= known


def test_every_file_that_is_named_lies_where_something_is_mounted(objects: Any) -> None:
    for pod in pods(objects):
        (container,) = pod["containers"]
        mounted = [each["mountPath"] for each in container["volumeMounts"]]
        named = [word for word in container["args"] if word.startswith("/")]
        named += [each["value"] for each in container["env"] if each["value"].startswith("/")]
        assert len(named) >= 3
        assert all(any(name.startswith(f"{path}/") for path in mounted) for name in named)


def test_a_workers_key_forgets_in_a_volume_that_no_other_pod_opens(objects: Any) -> None:
    """A Secret would hold the first day's key, and with it every later one's, for ever."""
    (claim,) = objects["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    (worker,) = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "key", "mountPath": "/var/lib/tacet"} in worker["volumeMounts"]
    assert "seed" not in {each["name"] for each in worker["volumeMounts"]}
    (seed,) = [each for each in objects["StatefulSet"]["spec"]["template"]["spec"]["volumes"] if each["name"] == "seed"]
    assert seed["secret"]["optional"] is True


@pytest.fixture
def with_hooks(tmp_path: Path) -> list[dict[str, Any]]:
    """What is made where systems of the cloud are heard, too."""
    given = ["--set", "policy=x", "--set", "hooks.enabled=true", "--set", "hooks.name=hooks.example.org"]
    done = helm("template", "tacet", CHART, *GIVEN, *given)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_what_faces_the_internet_shares_a_socket_with_the_ingest_and_nothing_else(
    with_hooks: list[dict[str, Any]],
) -> None:
    (pod,) = [each["spec"]["template"]["spec"] for each in with_hooks if each["kind"] == "Deployment"]
    ingest, hooks = pod["containers"]
    shared = [{mount["name"] for mount in each["volumeMounts"]} for each in (ingest, hooks)]
    assert shared[0] & shared[1] == {"handover"}
    assert hooks["args"][hooks["args"].index("--to") + 1] == ingest["args"][ingest["args"].index("--hooks") + 1]
    assert not any(each["name"].startswith("TACET_KAFKA") for each in hooks["env"])
    assert "readinessProbe" not in hooks, "a cloud that is away would keep traps from the pod"
    options = {word for word in hooks["args"] if word.startswith("--")}
    known = {option for parameter in subcommands(tacet)["hooks"].params for option in parameter.opts}
    assert {"--to", "--listen", "--metrics"} <= options <= known
    ports = [port["targetPort"] for each in with_hooks if each["kind"] == "Service" for port in each["spec"]["ports"]]
    assert ports == [1162, "hooks"]


@pytest.mark.parametrize("given", [(), ("poll.users=true",), ("hooks.enabled=true", "hooks.name=h.example.org")])
def test_what_has_the_controllers_credentials_shares_a_socket_with_the_ingest_and_nobody_connects_to_it(
    given: tuple[str, ...],
) -> None:
    words = [word for value in ("policy=x", "poll.enabled=true", *given) for word in ("--set", value)]
    done = helm("template", "tacet", CHART, *GIVEN, *words)
    assert done.returncode == 0, done.stderr
    made = list(yaml.safe_load_all(done.stdout))
    (pod,) = [each["spec"]["template"]["spec"] for each in made if each["kind"] == "Deployment"]
    containers = {each["name"]: each for each in pod["containers"]}
    ingest, poll = containers["ingest"], containers["poll"]
    shared = [{mount["name"] for mount in each["volumeMounts"]} for each in (ingest, poll)]
    assert shared[0] & shared[1] == {"handover", "policy"}
    assert shared[0] | shared[1] <= {each["name"] for each in pod["volumes"]}
    assert poll["args"][poll["args"].index("--to") + 1] == ingest["args"][ingest["args"].index("--polls") + 1]
    assert not any(each["name"].startswith("TACET_KAFKA") for each in poll["env"])
    assert ("TACET_SNMP_USERS_FILE" in {each["name"] for each in poll["env"]}) is ("poll.users=true" in given)
    assert "readinessProbe" not in poll, "a controller that is away would keep traps from the pod"
    options = {word for word in poll["args"] if word.startswith("--")}
    known = {option for parameter in subcommands(tacet)["poll"].params for option in parameter.opts}
    assert {"--policy", "--to", "--metrics"} <= options <= known
    names = [port["name"] for each in made if each["kind"] == "Service" for port in each["spec"]["ports"]]
    assert "poll" not in names
    network = policies(*words[2:])["tacet-ingest"]
    assert ports(network["egress"]) >= BROKERS | {("UDP", 161), ("TCP", 443)}


def test_a_name_must_be_given_where_systems_are_heard() -> None:
    done = helm("template", "tacet", CHART, *GIVEN, "--set", "policy=x", "--set", "hooks.enabled=true")
    assert (done.returncode, "hooks.name: must be the name" in done.stderr) == (1, True)


def test_there_is_one_ingest_and_it_sees_who_sends(objects: Any) -> None:
    assert (objects["Deployment"]["spec"]["replicas"], objects["Deployment"]["spec"]["strategy"]) == (
        1, {"type": "Recreate"},
    )  # fmt: skip
    assert objects["Service"]["spec"]["externalTrafficPolicy"] == "Local"
    assert [port["targetPort"] for port in objects["Service"]["spec"]["ports"]] == [1162]


def policies(*given: str) -> dict[str, dict[str, Any]]:
    """The network policies, by name."""
    done = helm("template", "tacet", CHART, *GIVEN, "--set", "policy=x", *given)
    assert done.returncode == 0, done.stderr
    made = [each for each in yaml.safe_load_all(done.stdout) if each and each["kind"] == "NetworkPolicy"]
    return {each["metadata"]["name"]: each["spec"] for each in made}


def ports(rules: list[dict[str, Any]]) -> set[tuple[str, int]]:
    return {(port["protocol"], port["port"]) for rule in rules for port in rule["ports"]}


BROKERS = {("UDP", 53), ("TCP", 53), ("TCP", 9092), ("TCP", 9093)}


def test_nothing_reaches_a_pod_but_what_its_role_needs() -> None:
    found = policies()
    assert set(found) == {"tacet-nothing", "tacet-ingest", "tacet-worker"}
    assert all(policy["policyTypes"] == ["Ingress", "Egress"] for policy in found.values())
    nothing = found["tacet-nothing"]
    assert set(nothing) == {"podSelector", "policyTypes"}
    assert set(nothing["podSelector"]["matchLabels"]) == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
    assert ports(found["tacet-ingest"]["ingress"]) == {("UDP", 1162)}
    assert "ingress" not in found["tacet-worker"]
    assert ports(found["tacet-ingest"]["egress"]) == ports(found["tacet-worker"]["egress"]) == BROKERS


def test_policies_select_the_pods_that_are_made(objects: Any) -> None:
    found = policies()
    for kind, name in (("Deployment", "tacet-ingest"), ("StatefulSet", "tacet-worker")):
        labels = objects[kind]["spec"]["template"]["metadata"]["labels"].items()
        assert found[name]["podSelector"]["matchLabels"].items() <= labels
        assert found["tacet-nothing"]["podSelector"]["matchLabels"].items() <= labels


def test_peers_and_further_rules_can_be_given_and_policies_left_out(tmp_path: Path) -> None:
    peer = "{podSelector: {matchLabels: {app: x}}}"
    probe = "{ports: [{protocol: UDP, port: 161}]}"
    words = [f"networkPolicy.{name}=[{peer}]" for name in ("controllers", "brokers", "prometheus")]
    given = [*words, f"networkPolicy.ingestEgress=[{probe}]"]
    file = tmp_path / "values.yaml"
    file.write_text(
        "\n".join(["networkPolicy:", *(f"  {word.partition('.')[2].replace('=', ': ', 1)}" for word in given)])
    )
    found = policies("--values", str(file), "--set", "hooks.enabled=true", "--set", "hooks.name=h.example.org")
    ingest, worker = found["tacet-ingest"], found["tacet-worker"]
    assert ports(ingest["ingress"]) == {("UDP", 1162), ("TCP", 8443), ("TCP", 9105), ("TCP", 9106)}
    assert ports(ingest["egress"]) == BROKERS | {("TCP", 443), ("UDP", 161)}
    assert ports(worker["ingress"]) == {("TCP", 9105)}
    chosen = [{"podSelector": {"matchLabels": {"app": "x"}}}]
    assert ingest["ingress"][0]["from"] == worker["ingress"][0]["from"] == worker["egress"][1]["to"] == chosen
    assert policies("--set", "networkPolicy.enabled=false") == {}


def test_polls_are_off_unless_somebody_says_otherwise() -> None:
    """As data, for machines without Helm."""
    poll = yaml.safe_load((CHART / "values.yaml").read_text())["poll"]
    assert (poll["enabled"], poll["users"], poll["secret"]) == (False, False, "tacet-poll")
    text = (CHART / "templates" / "ingest.yaml").read_text()
    assert text.count("/run/handover/polls") == 2
    assert text.count("{{- if .Values.poll.enabled }}") == 3


def test_policies_are_on_unless_somebody_says_otherwise() -> None:
    """As data, for machines without Helm."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())["networkPolicy"]
    assert values["enabled"] is True
    text = (CHART / "templates" / "network.yaml").read_text()
    assert text.count("policyTypes: [Ingress, Egress]") == text.count("kind: NetworkPolicy") == 3
