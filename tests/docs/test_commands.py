"""What the documents tell a reader to type is run as it stands.

The words beside a fence name its scenario: ``sh`` alone runs in an empty folder (the guide's, one after the other, in
one, by longer ticks; each night as it stands), ``sh after guide.md`` in what the guide has left, ``sh kafka`` there and
with a broker, ``sh kafka secured`` there and with a broker that they set up. ``sh compose`` needs an engine and root:
``deploy/try-compose`` is what runs it. A block that ends in a file's name is that file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
import yaml

from connectors.cli.main import tacet
from tests.integration.kafka_brokers import Broker, await_port, kafka_jars
from tests.integration.kafka_topics import clear_topics
from tests.integration.secured_kafka import JAVA_TOOLS, java_tool
from tests.integration.storm import answers_sigterm
from tests.support.documents import DOCUMENTS, ROOT, Block, blocks
from tests.support.patience import PATIENCE, wait_until
from tests.support.ports import free_port

GUIDE, AFTER_GUIDE = "docs/guide.md", "after guide.md"
SCENARIOS = {"", AFTER_GUIDE, "kafka", "kafka secured", "compose"}
PATH = os.pathsep.join([str(Path(__file__).parent / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
WIDTH = 80
SCRIPT = 4 * PATIENCE
"""Seconds for all lines of a document, one after the other."""


def run(script: str, folder: Path, **more: str) -> str:
    """Run lines of shell with ``tacet`` on the path; return what they print."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", with_free_port(script)], cwd=folder, env=environment(**more),
        capture_output=True, text=True, timeout=SCRIPT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment with ``tacet`` first, on a terminal as wide as the documents assume."""
    return os.environ | {"PATH": PATH, "PYTHONPATH": str(ROOT), "COLUMNS": str(WIDTH)} | more


def with_free_port(script: str) -> str:
    """Let a receiver listen where nobody else on this machine does."""
    return script.replace("127.0.0.1:1162", f"127.0.0.1:{free_port(socket.SOCK_DGRAM)}")


def script_of(block: Block) -> str:
    """Return the lines that run a block, or that write the file that it is."""
    if block.language == "sh":
        return block.text
    return f"cat > {block.scenario} <<'END_OF_FILE'\n{block.text}END_OF_FILE\n"


def is_file(block: Block) -> bool:
    """Whether the words beside the fence are a file's name."""
    return re.fullmatch(r"[a-z]+\.[a-z]+", block.scenario) is not None


STEPS = [block for block in blocks(document=GUIDE) if block.language == "sh" or is_file(block)]
MAKES_POLICY = re.compile(r"^(tacet (?:simulate|policy init) .*--(?:policy-)?out (\S+))$", re.MULTILINE)
SHORT, LONG = 'tick = "5min"', 'tick = "30min"'


def by_longer_ticks(script: str) -> str:
    """Let every policy count once in half an hour, as soon as it is made: the same commands, fewer ticks."""
    return MAKES_POLICY.sub(rf"\1\ngrep -q '^{SHORT}' \2\nsed -i 's/^{SHORT}/{LONG}/' \2", script)


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which every command of the guide has been run, by longer ticks, and what they printed."""
    folder, script = tmp_path_factory.mktemp("guide"), "\n".join(map(script_of, STEPS))
    assert len(MAKES_POLICY.findall(script)) == 2, "the simulated building's and the real one's"
    return folder, run(by_longer_ticks(script), folder)


@pytest.fixture
def after_guide(guided: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of what the guide has left."""
    return Path(shutil.copytree(guided[0], tmp_path / "guide"))


def test_the_guide_leads_to_releases_that_a_subscriber_reads(guided: tuple[Path, str]) -> None:
    _, printed = guided
    assert re.search(READ_BY_SUBSCRIBER, printed)


READ_BY_SUBSCRIBER = '"release_id":"dbh/(office-day|floors)/public/'


@pytest.mark.long
def test_the_guide_runs_as_it_stands(tmp_path: Path) -> None:
    printed = run("\n".join(map(script_of, STEPS)), tmp_path)
    assert re.search(READ_BY_SUBSCRIBER, printed)
    fits_a_terminal(printed)


def test_what_the_guide_prints_fits_a_terminal(guided: tuple[Path, str]) -> None:
    fits_a_terminal(guided[1])


def fits_a_terminal(printed: str) -> None:
    tables = [line.rstrip() for line in printed.splitlines() if not line.startswith(("{", "site "))]
    assert [line for line in tables if len(line) > WIDTH] == []


def test_every_block_of_shell_says_on_which_ground_it_runs() -> None:
    assert {block.scenario for block in blocks("sh")} <= SCENARIOS


EMPTY = [block for block in blocks("sh") if block.document != GUIDE and not block.scenario]
BESIDE = sorted({block.document for block in blocks("sh") if block.scenario == AFTER_GUIDE})


IN_EVERY_RUN = {"README.md", GUIDE, "docs/reference/commands.md"}
"""Documents whose commands are run in every run; those of the others each night. That the verbs and options of all
exist is tried in every run."""


def nightly(document: str) -> list[pytest.MarkDecorator]:
    return [] if document in IN_EVERY_RUN else [pytest.mark.long]


@pytest.mark.parametrize(
    "block", [pytest.param(block, marks=nightly(block.document), id=block.document) for block in EMPTY]
)
def test_shell_commands_run_as_they_stand(block: Block, tmp_path: Path) -> None:
    run(block.text, tmp_path)


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each ``tacet`` of a script, without that: up to a pipe, a list or a redirection."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        words.commenters = ""
        given: list[str] | None = None
        for word in words:
            if given is not None and set(word) <= set("|&;<>()"):
                yield given
                given = None
            elif given is not None:
                given.append(word)
            elif word == "tacet":
                given = []
        if given is not None:
            yield given


def parsed(words: list[str]) -> None:
    """Parse the words of a command; UsageError for a verb, an option or a number of arguments that does not exist."""
    command: click.Command = tacet
    rest = list(words)
    context = click.Context(command, info_name="tacet")
    while isinstance(command, click.Group):
        _, rest, _ = command.make_parser(context).parse_args(rest)
        if not rest:
            return
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.make_parser(context).parse_args(rest)


@pytest.mark.parametrize("document", sorted({block.document for block in blocks("sh")}))
def test_commands_have_the_options_that_are_given(document: str) -> None:
    given = [words for block in blocks("sh", document) for words in commands(block.text)]
    assert given or "docker compose" in "".join(block.text for block in blocks("sh", document))
    for words in given:
        parsed(words)


def test_an_option_that_does_not_exist_is_found_in_every_command() -> None:
    given = [words for block in blocks("sh") for words in commands(block.text)]
    for words in given:
        with pytest.raises(click.NoSuchOption):
            parsed([*words, "--no-such-option"])
    assert len(given) == sum(len(re.findall(r"\btacet (?![a-z-]*\.)", block.text)) for block in blocks("sh"))


@pytest.mark.parametrize("document", [pytest.param(document, marks=nightly(document)) for document in BESIDE])
def test_shell_commands_run_beside_what_the_guide_has_left(document: str, after_guide: Path) -> None:
    steps = [block.text for block in blocks("sh", document) if block.scenario == AFTER_GUIDE]
    run("\n".join(steps), after_guide)


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.document)
def test_python_runs_as_it_stands(block: Block, guided: tuple[Path, str], tmp_path: Path) -> None:
    if is_file(block) or block.scenario not in SCENARIOS:
        pytest.skip("a file of a worked example, which its own test follows")
    folder = Path(shutil.copytree(guided[0], tmp_path / "guide")) if block.scenario == AFTER_GUIDE else tmp_path
    (folder / "program.py").write_text(block.text)
    printed = run("python -W error program.py", folder)
    if "subscribe(" in block.text:
        assert re.match(r"20[-0-9:TZ]+ \{", printed)


# --- with a broker ----------------------------------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize(
    "block", [block for block in blocks("sh") if block.scenario == "kafka"], ids=lambda b: b.document
)
def test_commands_on_kafka_run_until_they_are_stopped(block: Block, kafka: Broker, after_guide: Path) -> None:
    asyncio.run(clear_topics(kafka.bootstrap))  # a broker that is shared may hold another test's cluster
    own = block.text.replace("kafka.example:9092", kafka.bootstrap)
    lines = [line for line in with_free_port(own).splitlines() if line]
    setting = [line for line in lines if line.startswith("export ")]
    going_on = []
    try:
        for line in lines:
            if line in setting:
                continue
            command = ["bash", "-euc", "\n".join([*setting, f"exec {line}"])]
            process = subprocess.Popen(command, cwd=after_guide, env=environment(), stdout=subprocess.DEVNULL)
            ends = "--observations" in line or "topics create" in line  # of itself, however long a busy machine takes
            if ends:
                assert process.wait(timeout=PATIENCE) == 0, line
            elif "subscribe" not in line:  # it goes on, and comes so far that it ends well when it is asked to
                wait_until(lambda process=process: answers_sigterm(process), line)  # type: ignore[misc]
            if process.poll() is None:
                going_on.append((line, process))
        assert [line.split()[1] for line, _ in going_on] == ["worker", "ingest", "subscribe"]
    finally:
        for _, process in going_on:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    for line, process in going_on:
        well = (
            {0} if line.split()[1] != "subscribe" else {0, -signal.SIGTERM}
        )  # a reader has nothing to bring to an end
        assert process.wait(timeout=max(1.0, deadline - time.monotonic())) in well, line


SECURED = [block.text for block in blocks("sh") if block.scenario == "kafka secured"]
PORTS = ("9093", "9094", "9095")
"""Those of ``deploy/kafka/secured.properties``."""


def moved(text: str, ports: Sequence[int]) -> str:
    """Let a broker of the documents be one of this machine, where nobody else listens."""
    for named, free in zip(PORTS, ports, strict=True):
        text = re.sub(rf"(?<=:){named}\b", str(free), text)
    return text.replace("kafka.example", "localhost")


@contextlib.contextmanager
def broker_of(folder: Path, port: int) -> Iterator[None]:
    """A broker by its ``server.properties``; what the blocks have made stands in the same folder."""
    with (folder / "broker.log").open("wb") as log:
        words = ["kafka-server-start.sh", "server.properties"]
        process = subprocess.Popen(words, cwd=folder, env=environment(PATH=f"{folder}:{PATH}"), stdout=log, stderr=log)
    try:
        await_port(f"127.0.0.1:{port}", alive=lambda: process.poll() is None)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.kafka
@pytest.mark.long
def test_a_kafka_with_tls_users_and_rules_is_set_up_by_the_commands_of_its_page(after_guide: Path) -> None:
    """All of them, with Kafka's own tools; what the rules are worth is tried in ``test_kafka_security.py``."""
    if kafka_jars() is None:
        pytest.skip("Kafka's own tools are not on this machine")
    for name, main in JAVA_TOOLS.items():
        java_tool(after_guide, name, main)
    ports = [free_port() for _ in PORTS]
    settings = moved((ROOT / "deploy" / "kafka" / "secured.properties").read_text(), ports)
    (after_guide / "server.properties").write_text(settings.replace("/var/lib/kafka/data", str(after_guide / "data")))
    certificates, administrator, *rest = (moved(text, ports) for text in SECURED)
    found = {"PATH": f"{after_guide}:{PATH}"}
    run(f"{certificates}\n{administrator}", after_guide, **found)
    with broker_of(after_guide, ports[0]):
        printed = run("\n".join(rest), after_guide, **found)
    assert len(re.findall('^{"v":1,"release_id":".*"audience":"public"', printed, flags=re.MULTILINE)) == 2
    assert "entries, each following the one before it" in printed
    assert "head against the state" in printed


COMPOSE_USER = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["worker"]["user"]
COMPOSE = [line for block in blocks("sh") if block.scenario == "compose" for line in block.text.splitlines()]


def test_what_compose_mounts_is_given_to_the_images_user_by_the_command_of_the_document(after_guide: Path) -> None:
    """Run as it stands where this is root; else with this user's own ids, and without sudo."""
    (line,) = [line for line in COMPOSE if "chown" in line]
    uid, gid = map(int, COMPOSE_USER.split(":")) if os.getuid() == 0 else (os.getuid(), os.getgid())
    (sudo := after_guide / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o700)
    beside = [block.text for block in blocks("sh", "docs/deployment.md") if "deploy/secrets" in block.text]
    run("\n".join([beside[0], 'PATH="$PWD:$PATH"', line.replace(COMPOSE_USER, f"{uid}:{gid}")]), after_guide)
    given = [after_guide / "deploy/secrets" / name for name in ("ingest/key", "ingest/communities", "worker/key")]
    assert [(path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o777) for path in given] == [
        (uid, gid, 0o600)
    ] * 3
    assert f"chown -R {COMPOSE_USER} " in line


def test_compose_is_brought_up_by_try_compose_as_the_document_says() -> None:
    """``tests/acceptance/test_compose_up.py`` runs it where an engine is at hand."""
    tried = (ROOT / "deploy" / "try-compose").read_text()
    assert [line for line in COMPOSE if "chown" not in line] == ["docker compose up --build"]
    assert "compose build" in tried
    assert 'compose "${profiles[@]}" up --detach --no-build' in tried
    assert f"chown -R {COMPOSE_USER} ingest worker" in tried


# --- names ------------------------------------------------------------------------------------------------------


def test_some_commands_are_run() -> None:
    assert sum(block.text.count("tacet ") for block in blocks("sh")) >= 30


def test_every_make_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for text in DOCUMENTS.values():
        assert set(re.findall(r"`make ([a-z]+)|^make ([a-z]+)", text, flags=re.MULTILINE)) <= {
            pair for target in targets for pair in ((target, ""), ("", target))
        }
