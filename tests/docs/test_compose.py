"""The compose file and the image: read as data, since they are the first thing an operator trusts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from connectors.cli.main import tacet
from stream.settings import Settings
from tests.conftest import had
from tests.integration.kafka_brokers import IMAGE, VERSION, required_jars
from tests.support.documents import DOCUMENTS
from tests.support.patience import PATIENCE
from tests.support.verb_tree import subcommands

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ["topics", "ingest", "worker", "page"]
"""Those that know the brokers; 'hooks' and 'poll' know none."""
PROFILES = {
    "core": {"kafka", "topics", "ingest", "worker"},
    "page": {"page"},
    "hooks": {"hooks"},
    "poll": {"poll"},
    "demo": {"demo"},
    "observability": {"prometheus", "grafana"},
}
every_service = pytest.mark.parametrize("name", SERVICES)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_has_its_services(profile: str) -> None:
    assert {name for name, service in SERVICES.items() if service["profiles"] == [profile]} >= PROFILES[profile]


def test_without_a_profile_the_core_is_meant() -> None:
    assert "COMPOSE_PROFILES=core" in (ROOT / ".env").read_text().splitlines()


@every_service
def test_what_a_service_waits_for_is_of_its_profile_or_of_the_core(name: str) -> None:
    profiles = {SERVICES[other]["profiles"][0] for other in SERVICES[name].get("depends_on", {})}
    assert profiles <= {"core", *SERVICES[name]["profiles"]}


@every_service
def test_a_service_runs_without_root_and_without_privileges(name: str) -> None:
    service = SERVICES[name]
    user, group = service["user"].split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    assert service.get("network_mode") is None


@every_service
def test_what_is_in_memory_reaches_neither_swap_nor_core_dump(name: str) -> None:
    service = SERVICES[name]
    assert service["mem_limit"] == service["memswap_limit"]
    assert service["ulimits"] == {"core": 0}


@every_service
def test_a_service_has_a_read_only_root_and_writes_to_named_places_only(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    writable = [volume for volume in service.get("volumes", []) if not volume.endswith(":ro")]
    allowed = {
        "kafka": ["kafka-data:/var/lib/kafka/data"],
        "ingest": ["./deploy/secrets/ingest:/run/tacet", "handover:/run/handover"],
        "hooks": ["./deploy/secrets/hooks:/run/tacet", "handover:/run/handover"],
        "poll": ["handover:/run/handover"],
        "worker": ["./deploy/secrets/worker:/var/lib/tacet"],
        "page": ["page-index:/var/lib/tacet"],
        "prometheus": ["prometheus-data:/prometheus"],
        "grafana": ["grafana-data:/var/lib/grafana"],
    }
    assert writable == allowed.get(name, [])


def test_what_people_look_at_is_on_the_loopback_and_files_are_of_these_users() -> None:
    """As docs/deployment.md says."""
    ports = {name: SERVICES[name]["ports"] for name in ("page", "prometheus", "grafana")}
    assert ports == {name: [f"127.0.0.1:{port}:{port}"] for name, port in
                     (("page", 8050), ("prometheus", 9090), ("grafana", 3000))}  # fmt: skip
    users = {name: SERVICES[name]["user"].split(":")[0] for name in ("page", "hooks", "poll", "grafana")}
    assert users == {"page": "10001", "hooks": "10002", "poll": "10003", "grafana": "472"}
    for name in ("hooks", "poll"):
        assert f"owned by user {users[name]}" in DOCUMENTS["docs/deployment.md"]


def test_others_reach_the_trap_port_and_what_hears_the_cloud_alone() -> None:
    published = {(name, port) for name, service in SERVICES.items() for port in service.get("ports", [])}
    reached = {(name, port) for name, port in published if not port.startswith("127.0.0.1:")}
    assert reached == {("ingest", "162:1162/udp"), ("hooks", "443:8443")}


def test_the_broker_is_on_a_network_that_leads_nowhere() -> None:
    assert COMPOSE["networks"]["log"] == {"internal": True}
    assert SERVICES["kafka"]["networks"] == ["log"]
    assert SERVICES["worker"]["networks"] == ["log", "watch"]
    assert COMPOSE["networks"]["watch"] == COMPOSE["networks"]["watch-hooks"] == {"internal": True}


def test_who_watches_shares_no_network_with_the_broker_and_reaches_all_that_it_asks() -> None:
    networks = {name: set(SERVICES[name].get("networks", ["default"])) for name in SERVICES}
    assert not networks["kafka"] & (networks["prometheus"] | networks["grafana"])
    for name in ("ingest", "worker", "page", "hooks", "poll", "grafana"):
        assert networks[name] & networks["prometheus"], name
    assert [name for name in SERVICES if networks[name] & networks["grafana"]] == ["prometheus", "grafana"]
    for name in SERVICES:  # what faces the internet reaches nobody's metrics
        assert name in {"hooks", "prometheus"} or not networks[name] & networks["hooks"] - {"outside"}, name
        assert name in {"poll", "prometheus"} or not networks[name] & networks["poll"], name


@every_service
def test_a_service_says_whether_it_is_well_or_ends(name: str) -> None:
    service = SERVICES[name]
    assert ("healthcheck" in service) != (service["restart"] in ("on-failure", "no"))


@every_service
def test_no_secret_stands_in_the_environment_or_on_a_command_line(name: str) -> None:
    service = SERVICES[name]
    for variable, value in service.get("environment", {}).items():
        if re.search("PASS|SECRET|COMMUNIT|TOKEN|KEY", variable):
            assert variable.endswith("_FILE")
            assert str(value).startswith("/run/")
    assert not re.search("pass|secret|communit", " ".join(service["command"]))


def test_the_broker_may_map_the_library_that_it_unpacks() -> None:
    (tmpfs,) = SERVICES["kafka"]["tmpfs"]
    assert tmpfs.startswith("/tmp:")
    assert "exec" in tmpfs.split(":")[1].split(",")


def test_what_is_run_is_the_version_of_kafka_that_is_tested() -> None:
    assert SERVICES["kafka"]["image"].partition("@")[0] == IMAGE == f"apache/kafka:{VERSION}"


def locked(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text()
    return dict(re.findall(r"^([\w-]+)==(\S+ (?:; .*)?)\\$", text, re.MULTILINE))


def test_the_image_holds_what_its_own_lock_names_each_by_its_hash_and_nothing_of_the_tests() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    installs = re.findall(r"pip install (.*?)(?: \\)?$", dockerfile, re.MULTILINE)
    assert len(installs) == 2
    assert "--require-hashes -r requirements-runtime.lock" in installs[0]
    assert "--no-deps --no-build-isolation --no-index" in installs[1]
    runtime, tested = locked("requirements-runtime.lock"), locked("requirements.lock")
    assert {"aiokafka", "numpy", "structlog"} <= set(runtime)
    assert not {"pytest", "mypy", "ruff", "hypothesis", "opendp", "testcontainers"} & set(runtime)
    assert {name: tested[name] for name in runtime} == runtime, "the image runs the versions that were tested"


def test_everything_waits_for_what_it_needs() -> None:
    assert SERVICES["topics"]["depends_on"]["kafka"]["condition"] == "service_healthy"
    for name in ("ingest", "worker", "page"):
        assert SERVICES[name]["depends_on"]["topics"]["condition"] == "service_completed_successfully"


@pytest.mark.parametrize("name", [*OURS, "demo", "hooks", "poll"])
def test_a_command_and_its_options_exist(name: str) -> None:
    command: click.Command = tacet
    words = list(SERVICES[name]["command"])
    while isinstance(command, click.Group):
        command = subcommands(command)[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= known
    required = {parameter.opts[-1] for parameter in command.params if parameter.required}
    assert required <= given


@pytest.mark.parametrize("name", OURS)
def test_an_environment_variable_is_a_setting(name: str) -> None:
    known = {f"TACET_{field.upper()}" for field in Settings.model_fields}
    assert set(SERVICES[name]["environment"]) <= known
    assert "TACET_KAFKA" in SERVICES[name]["environment"]


def test_prometheus_asks_every_service_that_shows_metrics_by_rules_that_are_there() -> None:
    asked = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    (scraped,) = asked["scrape_configs"]
    (names,) = scraped["dns_sd_configs"]
    words = [(name, word) for name in [*OURS, "hooks", "poll"] for word in SERVICES[name]["command"]]
    shown = {name: word for name, word in words if word.startswith("--metrics=")}
    assert set(names["names"]) == set(shown)
    assert set(shown.values()) == {f"--metrics=0.0.0.0:{names['port']}"}
    mounted = {volume.split(":")[1] for volume in SERVICES["prometheus"]["volumes"]}
    assert {f"/etc/prometheus/{file}" for file in asked["rule_files"]} <= mounted
    assert scraped["job_name"].startswith("tacet")


def test_grafana_finds_prometheus_and_the_operators_dashboard() -> None:
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert set(SERVICES["grafana"]["networks"]) & set(SERVICES["prometheus"]["networks"])
    (provider,) = yaml.safe_load((folder / "dashboards" / "tacet.yml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/operations.json" in mounted


def test_what_faces_the_internet_shares_a_socket_with_the_ingest_and_nothing_else() -> None:
    """Of another user, on no network of the broker, without a setting that names one."""
    hooks, ingest = SERVICES["hooks"], SERVICES["ingest"]
    assert hooks["user"].split(":")[1] == ingest["user"].split(":")[1]
    assert hooks["user"] != ingest["user"]
    assert "log" not in hooks["networks"]
    assert not any(name.startswith("TACET_KAFKA") for name in hooks["environment"])
    assert set(hooks["volumes"]) & set(ingest["volumes"]) == {"handover:/run/handover"}
    assert "uid=10001,gid=10001" in COMPOSE["volumes"]["handover"]["driver_opts"]["o"]
    (to,) = [word for word in hooks["command"] if word.startswith("--to=")]
    assert f"TACET_HANDOVER=--hooks={to.partition('=')[2]}" in (ROOT / ".env").read_text()
    assert [word for word in ingest["command"] if "TACET_HANDOVER" in word] == ["${TACET_HANDOVER:---udp=0.0.0.0:1162}"]


def test_what_has_the_controllers_credentials_shares_a_socket_with_the_ingest_and_nobody_connects_to_it() -> None:
    """Of another user, without a key, on no network of the broker or of the traps."""
    poll, ingest = SERVICES["poll"], SERVICES["ingest"]
    assert poll["user"].split(":")[1] == ingest["user"].split(":")[1]
    assert poll["user"] not in {ingest["user"], SERVICES["hooks"]["user"]}
    assert "ports" not in poll
    assert not set(poll["networks"]) & set(ingest["networks"])
    assert not any(name.startswith("TACET_KAFKA") for name in poll["environment"])
    assert {volume.partition(":")[0] for volume in set(poll["volumes"]) & set(ingest["volumes"])} == {
        "handover", "./deploy/policy.toml",
    }  # fmt: skip
    (to,) = [word for word in poll["command"] if word.startswith("--to=")]
    assert f"TACET_POLLED=--polls={to.partition('=')[2]}" in (ROOT / ".env").read_text()
    assert [word for word in ingest["command"] if "TACET_POLLED" in word] == ["${TACET_POLLED:---udp=0.0.0.0:1162}"]


def test_a_worker_gets_the_time_it_needs_to_stop() -> None:
    assert int(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) > 10


def test_the_health_check_of_ingest_looks_for_its_own_port() -> None:
    (udp,) = [word for word in SERVICES["ingest"]["command"] if word.startswith("--udp=")]
    port = udp.rpartition(":")[2]
    assert f":{int(port):04X} " in SERVICES["ingest"]["healthcheck"]["test"]
    assert SERVICES["ingest"]["ports"] == [f"162:{port}/udp"]


def test_the_image_runs_without_root_and_holds_no_secret() -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")][-1] == f"USER {SERVICES['worker']['user']}"
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:]]
    assert set(copied) <= {
        "requirements-runtime.lock", "pyproject.toml", "README.md", "LICENSE", "./", "stream", "connectors", "tacet",
        "--from=build", "/opt/tacet",
    }  # fmt: skip
    assert all((ROOT / word).exists() for word in copied if not word.startswith(("-", "/", ".")))
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored  # everything is kept out but what is named


def test_the_paths_of_mounted_files_are_those_the_commands_read() -> None:
    for name in [*OURS, "hooks", "poll"]:
        targets = [volume.split(":")[1] for volume in SERVICES[name]["volumes"]]
        paths = [path for word in SERVICES[name]["command"] if (path := word.partition("=")[2]).startswith("/")]
        paths += [value for value in SERVICES[name]["environment"].values() if str(value).startswith("/")]
        assert paths
        assert all(any(path.startswith(target) for target in targets) for path in paths)


def properties() -> dict[str, str]:
    lines = (ROOT / "deploy" / "kafka" / "server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_broker_is_its_own_controller_and_makes_no_topic_by_itself() -> None:
    settings = properties()
    assert settings["process.roles"] == "broker,controller"
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["advertised.listeners"] == f"PLAINTEXT://{SERVICES['worker']['environment']['TACET_KAFKA']}"
    assert any(volume.endswith(settings["log.dirs"]) for volume in SERVICES["kafka"]["volumes"])


@pytest.mark.kafka
def test_kafka_itself_accepts_the_broker_settings(tmp_path: Path) -> None:
    jars = had(required_jars)
    file = tmp_path / "server.properties"
    settings = properties() | {"log.dirs": str(tmp_path / "data")}
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    cluster = SERVICES["kafka"]["environment"]["CLUSTER"]
    command = ["java", "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format", "--standalone", "--ignore-formatted"]
    for _ in range(2):  # the second time the folder is formatted already, as after a restart
        done = subprocess.run(
            [*command, "--cluster-id", cluster, "--config", str(file)],
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()[-500:]
