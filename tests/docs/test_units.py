"""The systemd units: read as data, checked by systemd's own tools where they are, their commands by the commands."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from connectors.cli.main import tacet
from tests.support.documents import DOCUMENTS
from tests.support.patience import PATIENCE
from tests.support.verb_tree import subcommands

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
SERVICES = sorted(path.stem for path in UNITS.glob("*.service"))
HARDENING = "tacet-.service.d/hardening.conf"
WORST = 1.5
"""Of systemd's own figure for what a unit could do to a machine: 0 is nothing, 10 all."""
every_service = pytest.mark.parametrize("name", SERVICES)


def settings(file: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", (UNITS / file).read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the units as they are installed, and a command that they can name."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(UNITS, root / "etc/systemd/system")
    command = root / settings("tacet-run.service")["ExecStart"][0].split()[0].lstrip("/")
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    return root


def analyzed(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["systemd-analyze", f"--root={root}", "--no-pager", *words], capture_output=True, text=True, check=False,
        timeout=PATIENCE,
    )  # fmt: skip
    return done.stdout + done.stderr


@every_service
def test_systemd_itself_finds_little_that_a_service_could_do(name: str, installed: Path) -> None:
    told = analyzed(installed, "security", "--offline=true", f"{name}.service")
    (level,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert float(level) <= WORST, told


@every_service
def test_systemd_itself_understands_every_line(name: str, installed: Path) -> None:
    told = analyzed(installed, "verify", f"{name}.service")
    assert "Unknown" not in told
    assert "Failed to parse" not in told


def test_hardening_reaches_every_service() -> None:
    """A drop-in for a prefix: who has another name would run without it."""
    assert len(SERVICES) >= 4
    assert all(name.startswith("tacet-") for name in SERVICES)
    for name in SERVICES:
        assert not set(settings(f"{name}.service")) & (set(settings(HARDENING)) - {"RestartSec", "Environment"}), name


def octets(size: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi|M|G|m|g)", size).groups()  # type: ignore[union-attr]
    return int(number) << {"m": 20, "g": 30}[unit[0].lower()]


def test_every_service_has_a_bound_on_its_memory_which_is_that_of_the_chart() -> None:
    bounds = {}
    for name in SERVICES:
        (bound,) = settings(f"{name}.service")["MemoryMax"]
        bounds[name.removeprefix("tacet-")] = octets(bound)
    chart = yaml.safe_load((UNITS.parent / "helm/tacet/values.yaml").read_text())
    limits = {
        name: octets(chart[name]["resources"]["limits"]["memory"]) for name in ("ingest", "worker", "hooks", "poll")
    }
    assert {name: bounds[name] for name in limits} == limits
    assert bounds["run"] >= limits["worker"], "it is ingest and worker in one"
    least, most = (min(bounds.values()) >> 20, max(bounds.values()) >> 30)
    assert f"{least} MiB to {most} GiB of memory" in DOCUMENTS["docs/deployment.md"]


def test_memory_reaches_neither_swap_nor_core_dump_and_files_no_other_user() -> None:
    held = settings(HARDENING)
    assert (held["MemorySwapMax"], held["LimitCORE"]) == (["0"], ["0"])
    assert (held["UMask"], held["StateDirectoryMode"]) == (["0077"], ["0700"])
    assert (held["CapabilityBoundingSet"], held["NoNewPrivileges"], held["ProtectSystem"]) == (
        [""],
        ["yes"],
        ["strict"],
    )


def test_memory_that_one_thread_has_let_go_of_serves_another() -> None:
    """Units and images alike; a day's soak runs so."""
    told = settings(HARDENING)["Environment"]
    assert told == ["MALLOC_ARENA_MAX=2"]
    assert settings("tacet-serve.service")["Environment"] == ["MALLOC_MMAP_THRESHOLD_=131072"]
    assert f"ENV {' '.join(told)}\n" in (UNITS.parent / "Dockerfile").read_text()


def test_a_restart_is_not_tried_where_it_mends_nothing() -> None:
    """2 is wrong usage, policy or key."""
    assert settings(HARDENING)["RestartPreventExitStatus"] == ["2"]
    assert settings(HARDENING)["Restart"] == ["on-failure"]


@every_service
def test_each_role_is_a_user_of_its_own_that_is_made(name: str) -> None:
    unit = settings(f"{name}.service")
    users = re.findall(r"^u (\S+)", (UNITS / "tacet.sysusers").read_text(), re.MULTILINE)
    assert unit["User"][0] in users
    assert unit["WorkingDirectory"] == [f"/var/lib/{unit['StateDirectory'][0]}"]
    assert [settings(f"{other}.service")["User"] for other in SERVICES].count(unit["User"]) == 1


@every_service
def test_a_command_and_its_options_exist(name: str) -> None:
    _, *words = settings(f"{name}.service")["ExecStart"][0].split()
    command: click.Command = tacet
    while isinstance(command, click.Group):
        command = subcommands(command)[words.pop(0)]
    assert set(_options(words)) <= {option for parameter in command.params for option in parameter.opts}
    settled = {"--audience"} if name == "tacet-report" else set[str]()  # in REPORT_OPTIONS: whose report is a choice
    required = {parameter.opts[-1] for parameter in command.params if parameter.required}
    assert required <= {*_options(words), *settled}


@pytest.mark.parametrize("role", ["ingest", "hooks", "poll", "run", "serve", "worker"])
def test_a_unit_takes_further_options_from_its_environment(role: str) -> None:
    unit = settings(f"tacet-{role}.service")
    assert unit["ExecStart"][0].split()[-1] == f"${role.upper()}_OPTIONS"
    assert unit["EnvironmentFile"] == [f"-/etc/tacet/tacet-{role}.env"]


def _options(words: list[str]) -> Iterator[str]:
    return (word for word in words if word.startswith("--"))


def test_what_faces_the_internet_reaches_the_ingests_socket_and_none_of_its_files() -> None:
    """The socket is open to the ingest's group; its folder of keys is its own (``StateDirectoryMode``)."""
    ingest, hooks = settings("tacet-ingest.service"), settings("tacet-hooks.service")
    folder = f"/run/{ingest['RuntimeDirectory'][0]}"
    assert ingest["RuntimeDirectoryMode"] == ["0750"]
    assert hooks["SupplementaryGroups"] == ingest["User"] == ["tacet-ingest"]
    words = hooks["ExecStart"][0].split()
    assert words[words.index("--to") + 1] == f"{folder}/hooks"
    assert f"INGEST_OPTIONS=--hooks {folder}/hooks" in (UNITS / "tacet-ingest.service").read_text()
    file = f"TACET_HOOKS_FILE={hooks['WorkingDirectory'][0]}/hooks.toml"
    assert hooks["Environment"] == [file, "MALLOC_MMAP_THRESHOLD_=131072"]


def test_what_has_the_controllers_credentials_reaches_the_ingests_socket_and_none_of_its_files() -> None:
    ingest, poll = settings("tacet-ingest.service"), settings("tacet-poll.service")
    folder = f"/run/{ingest['RuntimeDirectory'][0]}"
    assert poll["SupplementaryGroups"] == ingest["User"]
    assert poll["User"] != ingest["User"]
    words = poll["ExecStart"][0].split()
    assert words[words.index("--to") + 1] == f"{folder}/polls"
    assert f"INGEST_OPTIONS=--polls {folder}/polls" in (UNITS / "tacet-ingest.service").read_text()
    file = f"TACET_POLLS_FILE={poll['WorkingDirectory'][0]}/polls.toml"
    assert poll["Environment"] == [file, "MALLOC_MMAP_THRESHOLD_=131072"]


def test_reports_are_made_once_a_month_after_its_end() -> None:
    assert settings("tacet-report.timer")["OnCalendar"] == ["*-*-02 06:00:00"]
    assert "--month last" in settings("tacet-report.service")["ExecStart"][0]


def test_heads_are_signed_every_day_into_two_files() -> None:
    assert settings("tacet-audit-sign.timer")["OnCalendar"] == ["*-*-* 00:20:00 UTC"]
    assert settings("tacet-audit-sign.timer")["Persistent"] == ["true"]
    assert settings("tacet-audit-sign.service")["ExecStart"][0].split().count("--heads") == 2
