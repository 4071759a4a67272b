"""The command ``tacet``: loads verbs when they are used, and maps errors to messages and documented exit codes."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
from pydantic import ValidationError

from connectors.cli.lazy_group import LazyGroup, Verb
from connectors.runtime import logs
from connectors.storage.kafka.broker_errors import broker_error
from stream.errors import DataError, TacetError, UsageError
from stream.policy.validation_errors import rule_of, shown
from stream.settings import Settings

USAGE, DATA, OTHER = 2, 3, 1
ROOT = Path(__file__).parents[2]

SECTIONS = {
    "Start": {
        "demo": Verb("connectors.cli.demo", "Run one simulated day from SNMP traps to private releases"),
        "key": Verb("connectors.cli.key", "Make key files"),
        "policy": Verb("connectors.cli.policy", "Write a first policy, check one, or print what it promises"),
    },
    "Run": {
        "run": Verb("connectors.cli.run", "Run the whole pipeline in one process, without a broker"),
        "ingest": Verb("connectors.cli.ingest", "Send observations to Kafka"),
        "worker": Verb("connectors.cli.worker", "Turn observations on Kafka into private topics"),
        "topics": Verb("connectors.cli.topics", "Create the topics of a policy on Kafka"),
        "hooks": Verb("connectors.cli.hooks", "Take webhooks of Mist and Meraki, read Cisco Spaces"),
        "backfill": Verb("connectors.cli.backfill", "Settle recorded OBSERVATIONS with a store"),
    },
    "Read": {
        "subscribe": Verb("connectors.cli.subscribe", "Print private releases as they come"),
        "serve": Verb("connectors.cli.serve", "Serve released records over HTTP"),
        "token": Verb("connectors.cli.serve", "Say who may see what at 'tacet serve'"),
        "account": Verb("connectors.cli.account", "Show what all releases together have cost"),
        "sink": Verb("connectors.cli.sink", "Hand releases on"),
        "export": Verb("connectors.cli.sink", "Show releases to those who come for them"),
    },
    "Look after": {
        "status": Verb("connectors.cli.subscribe", "Show where each site stands"),
        "doctor": Verb("connectors.cli.doctor", "Say what is wrong with an installation, and what to do"),
        "recover": Verb("connectors.cli.recover", "Say what keeps a run from going on"),
        "republish": Verb("connectors.cli.republish", "Publish lost records again, byte for byte"),
        "store": Verb("connectors.cli.store", "Look after an embedded store"),
        "audit": Verb("connectors.cli.audit", "Check the books that all releases are charged to"),
    },
    "Laboratory": {
        "simulate": Verb("connectors.cli.replay", "Simulate a building"),
        "replay": Verb(
            "connectors.cli.replay", "Run recorded OBSERVATIONS (CSV or JSONL) through the whole pipeline into files"
        ),
        "release": Verb(
            "connectors.cli.replay",
            "Release a table COUNTS (columns time, zone, count) privately into OUT (time, zone, value, half_width)",
        ),
        "decide": Verb(
            "connectors.cli.decide",
            "Decide which COUNTS (columns predicate, count) are above THRESHOLDS (predicate, threshold, perhaps alpha)",
        ),
        "tune": Verb(
            "connectors.cli.tune",
            "Find the least epsilon, or shortest salt life (ttl), at which what is released still serves a task",
        ),
        "evaluate": Verb("connectors.cli.evaluate", "Experiments on simulated data"),
        "attack": Verb("connectors.cli.attack", "Look for people in what a policy releases of a recording"),
        "leakage": Verb("connectors.cli.leakage", "Ask what releases give away"),
        "optimise": Verb("connectors.cli.leakage", "Choose epsilons of attributes from an information target"),
    },
}
"""What each verb is for -> verb -> where it is, in the order in which somebody new needs them."""

SERVICES = {"run", "ingest", "worker", "hooks", "serve", "sink", "export"}
"""Verbs that exit with 0 on a stop signal, from their first moment on."""


@click.group(cls=LazyGroup, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tacet-occupancy", prog_name="tacet")
@click.pass_context
def tacet(context: click.Context) -> None:
    """Private occupancy streams from Wi-Fi.

    Controllers send SNMP traps; Tacet counts devices per zone every five minutes, publishes the counts and
    facts about a room's day with differential privacy, and keeps the account of what has been given away.

    \b
    Start here:   tacet demo
    Your policy:  tacet policy check policy.toml; tacet policy show policy.toml
    Live:         tacet run --policy policy.toml --key-file key --store store --udp 0.0.0.0:1162

    Exit codes: 0 done; 2 wrong usage, policy or key; 3 bad data (the rest was processed); 1 anything else.
    """
    settings = Settings()
    logs.configure(settings.log_level, json=settings.log_json)
    context.obj = settings


def main() -> None:
    """Run the command line; an error becomes one line on standard error and an exit code."""
    if SERVICES.intersection(sys.argv[1:2]):  # until the verb installs its own handler; nothing has started yet
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    logs.catch_strays()
    try:
        _run()
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.ClickException as error:
        _misused(error)
    except ValidationError as error:
        _fail("\n".join(map(_setting, error.errors())), USAGE)
    except UsageError as error:
        _fail(str(error), USAGE)
    except DataError as error:
        _fail(str(error), DATA)
    except (TacetError, OSError) as error:
        _fail(_disk_full(error) or str(error), OTHER)
    except Exception as error:
        _fail(broker_error(error) or _fault(error), OTHER)


def _run() -> None:
    """Run the command; if several tasks raised errors at once, raise the most informative one."""
    try:
        tacet(standalone_mode=False)
    except BaseExceptionGroup as group:
        leaves = list(_leaves(group))
        raise next((leaf for leaf in leaves if isinstance(leaf, TacetError | OSError)), leaves[0]) from None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _setting(problem: Any) -> str:
    """Return which environment variable broke which rule."""
    name = "_".join(map(str, problem["loc"])).upper()
    return f"TACET_{name}: {rule_of(problem)}{shown(problem['input'])}"


def _disk_full(error: Exception) -> str | None:
    """Return the message for a full disk, None for other errors."""
    if not isinstance(error, OSError) or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
        return None
    return f"{error.filename or 'a file'}: disk full; make room and start again"


def _fault(error: Exception) -> str:
    """Return type and place of an internal error, never its text, which may contain data."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent.is_relative_to(ROOT)] or frames
    place = f" in {Path(own[-1].filename).name}, line {own[-1].lineno}" if own else ""
    return f"internal error, {type(error).__name__}{place}; its text is not shown, for it may hold data"


def _misused(error: click.ClickException) -> NoReturn:
    if logs.writes_json():
        _fail(error.format_message(), USAGE)
    error.show()
    sys.exit(USAGE)


def _fail(message: str, code: int) -> NoReturn:
    logs.report_end(message)
    sys.exit(code)
