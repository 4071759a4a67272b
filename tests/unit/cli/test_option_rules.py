"""Options that contradict each other are refused with exit code 2, before anything is read or changed."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from connectors.cli.main import SECTIONS, tacet
from tests.acceptance.command_line import POLICY as SITES
from tests.acceptance.command_line import run
from tests.support.small_building import policy_text
from tests.support.verb_tree import all_commands, subcommands

POLICY = ("--policy", "policy.toml")
RUN = ("run", *POLICY, "--key-file", "key", "--store", "store")
RETIRE = ("key", "retire", "--new-key", "new")
RELEASE = ("release", "counts.csv", "--epsilon", "1", "--key-file", "key", "--out", "out.csv", "--mechanism")
SUBSCRIBE = ("subscribe", "--audience", "dean")
WEBHOOK = (
    "sink",
    "webhook",
    "--audience",
    "dean",
    "--store",
    "s",
    "--cursor",
    "c",
    "--to",
    "https://a",
    "--secret-file",
    "f",
)
DAY = ("--unit", "device_day")
CALIBRATE = ("calibrate", "heads.csv", "--release", "occupancy", "--audience", "public", "--out", "m.json")
HISTORY, PAID = ("--history", "h.csv"), ("--truth-epsilon", "1", "--noised", "n.csv")


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        # sources of observations
        ((*RUN,), "give either --observations, or some of --udp"),
        ((*RUN, "--udp", ":1162", "--observations", "o.csv"), "give either --observations, or some of --udp"),
        ((*RUN, "--udp", ":1162", "--devices", "opaque"), "--columns, --timezone, --times, --devices: must be used"),
        ((*RUN, "--udp", ":1162", "--radius", ":1813", "--clock", "uptime", "--start", "2026-03-02T10:00:00Z"),
         "--clock uptime: must be used with --udp alone"),
        ((*RUN, "--telegraf", "traps"), "--telegraf: must be used with --kafka or TACET_KAFKA"),
        ((*RUN, "--udp", ":1162"), "TACET_SNMP_COMMUNITIES_FILE: must name a file"),
        ((*RUN, "--radius", ":1813"), "TACET_RADIUS_CLIENTS_FILE: must name a file"),
        ((*RUN, "--counts", "c.csv", "--topic", "counts"), "--counts: give a file, or --topic"),
        ((*RUN, "--topic", "counts"), "--counts: give a file, or --topic"),
        ((*RUN, "--counts"), "--counts: give a file, or --topic"),
        ((*RUN, "--counts", "c.csv", "--udp", ":1162"), "give --counts alone"),
        ((*RUN, "--counts", "c.csv", "--times", "seconds"), "--columns, --timezone, --times, --devices: must be used"),
        ((*RUN, "--udp", ":1162", "--metrics-name", "host"), "--metrics-name: must be given with --metrics"),
        (("ingest", *POLICY, "--key-file", "key", "--udp", ":1162", "--from", "2026-03-02T10:00:00Z"),
         "--from, --to: must be used with a file"),
        (("worker", *POLICY, "--key-file", "key", "--again", "1"), "--again needs --accept-policy"),
        # storage
        ((*SUBSCRIBE, "--store", "s", "--kafka", "broker:9092"), "give either --store or --kafka"),
        ((*SUBSCRIBE, "--store", "s", "--url", "http://127.0.0.1"), "give either --store or --kafka, or --url"),
        ((*SUBSCRIBE, "--store", "s", "--token-file", "t"), "--token-file: must be used with --url"),
        (("audit", "verify", "--store", "s", "--books", "b.jsonl"), "give either --store or --kafka, or --books"),
        (("republish", *POLICY, "--key-file", "key", "--store", "s"), "OBSERVATIONS: must be given with --store"),
        # keys and recovery
        ((*RETIRE, "--store", "s", "--new-store", "n"), "give either --key-file or --lost"),
        ((*RETIRE, "--store", "s", "--new-store", "n", "--lost", "--key-file", "k"), "either --key-file or --lost"),
        ((*RETIRE, "--store", "s", "--lost"), "--new-store: must be used with --store, and only with it"),
        ((*RETIRE, "--kafka", "broker:9092", "--new-store", "n", "--lost"), "--new-store: must be used with --store"),
        (("recover", "--kafka", "broker:9092", "--reopen", "east"), "--heads, --reopen: must be used with --store"),
        (("recover", "--kafka", "broker:9092", "--heads", "h.json"), "--heads, --reopen: must be used with --store"),
        (("recover", "--store", "s", "--heads", "h.json"), "--heads needs --key-file"),
        (("recover", "--store", "s", "--key-file", "key", "--reopen", "east"), "--reopen needs --key-file and"),
        # sinks and the service
        ((*WEBHOOK, "--on", "crossing"), "--threshold: must be given with --on crossing, and only then"),
        (("serve", *POLICY, "--store", "s", "--tls-cert", "cert"), "--tls-cert: must be used with --tls-key"),
        (("token", "new", "--tokens", "t", "--name", "anne"), "must be given, or --room, --account or --operator"),
        # people
        ((*CALIBRATE, *POLICY, *HISTORY, "--truth", "public", *PAID), "--truth public: must not be given with"),
        ((*CALIBRATE, *POLICY, *HISTORY, "--truth-epsilon", "1"), "--noised: must be given with --truth-epsilon"),
        ((*CALIBRATE, *POLICY, *HISTORY, "--noised", "n.csv"), "--noised: must be given with --truth-epsilon, and"),
        ((*CALIBRATE, *POLICY, *HISTORY, "--store", "s"), "--store or --history: exactly one of them must be given"),
        ((*CALIBRATE, *POLICY), "--store or --history: exactly one of them must be given"),
        ((*CALIBRATE, "--policy", "sites.toml", *HISTORY), "--site: must be one of east, west"),
        # policies
        (("policy", "init"), "give either --access-points or --from-observations"),
        (("policy", "init", "--access-points", "a.csv", "--site", "a b"), "--site: must be a name of letters"),
        (("policy", "init", "--access-points", "a.csv", "--timezone", "Mars/Base"), "--timezone: must be a name"),
        (("policy", "plan", "policy.toml", *POLICY), "give the policy once"),
        (("policy", "contracts", "policy.toml", "--out", "c", "--audience", "provost"), "--audience must be one of"),
        # releases of tables
        ((*RELEASE, "laplace", *DAY), "--ticks: must be used with --unit device_day, and only with it"),
        ((*RELEASE, "laplace", "--ticks", "2"), "--ticks: must be used with --unit device_day, and only with it"),
        ((*RELEASE, "laplace", "--noise", "gaussian"), "--noise: gaussian must be used with --unit device_day"),
        ((*RELEASE, "filter", *DAY, "--ticks", "2", "--delta", "1e-6"), "--delta: must be used with --noise gaussian"),
        ((*RELEASE, "pegasus", *DAY, "--ticks", "2"), "--unit: device_day must be used with"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_options_that_contradict_each_other_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], rule: str
) -> None:
    for name in ("KAFKA", "SNMP_COMMUNITIES_FILE", "SNMP_USERS_FILE", "RADIUS_CLIENTS_FILE"):
        monkeypatch.delenv(f"TACET_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("policy.toml").write_text(policy_text())
    Path("sites.toml").write_text(SITES)
    (Path("s") / "private").mkdir(parents=True)
    before = sorted(Path().rglob("*"))
    done = run(*words)
    assert (done.code, rule in " ".join(done.problem.split())) == (2, True), done
    assert sorted(Path().rglob("*")) == before


def test_each_verb_is_in_the_module_of_its_name() -> None:
    verbs = subcommands(tacet)
    assert list(verbs) == [name for names in SECTIONS.values() for name in names]
    for path, command in all_commands(tacet).items():
        assert command.callback is not None
        assert command.callback.__module__ in {f"connectors.cli.{path[0]}", "connectors.cli.options"}, path
        # an option decorator wraps the function of a verb, and keeps its name and module
        assert getattr(command.callback, "__wrapped__", command.callback).__module__ == f"connectors.cli.{path[0]}"


def test_a_group_lists_its_verbs_in_the_order_of_use_with_whole_sentences() -> None:
    policy = subcommands(tacet)["policy"]
    assert isinstance(policy, click.Group)
    assert policy.list_commands(click.Context(policy)) == ["init", "check", "contracts", "show", "plan", "diff"]
    printed = " ".join(run("policy", "--help").out.partition("Commands:")[2].split())
    assert "what gets cheaper or more expensive, what restarts, and when." in printed
    assert "..." not in printed
