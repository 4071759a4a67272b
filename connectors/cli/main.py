"""The command ``tacet``: loads verbs late, and maps errors to exit codes."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NoReturn, cast

import click
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from connectors.runtime import logs
from connectors.storage.kafka.broker_errors import broker_error
from stream.errors import DataError, TacetError, UsageError
from stream.policy.validation_errors import rule_of, shown
from stream.settings import Settings

USAGE, DATA, OTHER = 2, 3, 1
ROOT = Path(__file__).parents[2]

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Start": {
        "demo": "Run one simulated day from SNMP traps to private releases",
        "key": "Create, export and retire key files",
        "policy": "Write, check and compare policies",
        "dossier": "Write drafts for the data protection officer",
    },
    "Run": {
        "run": "Run the whole pipeline in one process, without a broker",
        "ingest": "Send observations to Kafka",
        "worker": "Process observations on Kafka into private releases",
        "topics": "Create the topics of a policy on Kafka",
        "hooks": "Receive webhooks of Mist and Meraki, and read Cisco Spaces",
        "poll": "Read the client tables of controllers at fixed times",
        "backfill": "Release the windows of a recording that a store has missed",
    },
    "Read": {
        "subscribe": "Print private releases as they arrive",
        "serve": "Serve released records over HTTP",
        "token": "Manage the access tokens of 'tacet serve'",
        "account": "Show what all releases together have cost",
        "sink": "Deliver releases to an MQTT broker, a webhook or by mail",
        "export": "Expose releases as metrics",
        "report": "Write a month's report for a building's manager",
        "calibrate": "Learn how many people there are per device",
    },
    "Look after": {
        "status": "Show the progress of each site",
        "doctor": "Check an installation, and suggest remedies",
        "recover": "Find out why a run cannot continue",
        "republish": "Publish lost records again, byte for byte",
        "store": "Back up and restore an embedded store",
        "optout": "Leave devices out of all counts",
        "audit": "Verify, sign and export the audit log",
    },
    "Laboratory": {
        "simulate": "Simulate a building",
        "replay": "Run a recording through the whole pipeline into files",
        "release": "Release a table of counts privately",
        "decide": "Decide privately which counts are above their thresholds",
        "tune": "Find the most private epsilon that still serves a task",
        "evaluate": "Run experiments on simulated data",
        "attack": "Try to find people in the releases of a recording",
        "leakage": "Compute what releases reveal",
        "optimise": "Choose epsilons of attributes from an information target",
    },
}
"""Purpose -> verb -> how its help text begins; all in the order in which a new user needs them.

A verb is a function of the module ``connectors.cli`` with the same name.
"""

SERVICES = {"run", "ingest", "worker", "hooks", "poll", "serve", "sink", "export"}
"""Verbs that exit with 0 on a stop signal, even before they have installed a handler of their own."""


class LazyGroup(click.Group):
    """Loads the module of a verb when the verb is used, because most verbs need neither Kafka nor SciPy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return [name for verbs in SECTIONS.values() for name in verbs]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load the module of a verb and return its command; None if there is no verb of this name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_")
        return cast(click.Command, getattr(import_module(f"connectors.cli.{name}"), name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs, section by section, without loading them."""
        width = max(map(len, self.list_commands(ctx)))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in verbs.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tacet-occupancy", prog_name="tacet")
@click.pass_context
def tacet(context: click.Context) -> None:
    """Private occupancy streams from Wi-Fi.

    Wi-Fi controllers send SNMP traps. Tacet counts devices per zone every five minutes, publishes these counts
    and facts about a room's day with differential privacy, and keeps an account of the privacy that this costs.

    \b
    First steps:  tacet demo
    Your policy:  tacet policy check policy.toml; tacet policy show policy.toml
    Live:         tacet run --policy policy.toml --key-file key --store store --udp 0.0.0.0:1162

    Exit codes: 0 success; 2 wrong usage, policy or key; 3 bad data (the rest was processed); 1 any other error.
    """
    settings = Settings()
    logs.configure(settings.log_level, json=settings.log_json)
    context.obj = settings


def main() -> None:
    """Run the command line; an error becomes one line on standard error and an exit code."""
    if SERVICES.intersection(sys.argv[1:2]):  # until the verb installs its own handler
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    logs.catch_strays()
    try:
        _run()
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.ClickException as error:
        _fail_usage(error)
    except ValidationError as error:
        _fail("\n".join(map(_setting, error.errors())), USAGE)
    except UsageError as error:
        _fail(str(error), USAGE)
    except DataError as error:
        _fail(str(error), DATA)
    except (TacetError, OSError) as error:
        _fail(_disk_full(error) or str(error), OTHER)
    except Exception as error:
        _fail(broker_error(error) or _internal_error(error), OTHER)


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


def _setting(problem: ErrorDetails) -> str:
    """Return the message for an environment variable that breaks a rule."""
    name = "_".join(map(str, problem["loc"])).upper()
    return f"TACET_{name}: {rule_of(problem)}{shown(problem['input'])}"


def _disk_full(error: Exception) -> str | None:
    """Return the message for a full disk, None for other errors."""
    if not isinstance(error, OSError) or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
        return None
    return f"{error.filename or 'a file'}: disk full; free space and start again"


def _internal_error(error: Exception) -> str:
    """Return type and place of an internal error, never its text, which may contain data."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent.is_relative_to(ROOT)] or frames
    place = f" in {Path(own[-1].filename).name}, line {own[-1].lineno}" if own else ""
    return f"internal error, {type(error).__name__}{place}; its text is not shown because it may contain data"


def _fail_usage(error: click.ClickException) -> NoReturn:
    if logs.writes_json():
        _fail(error.format_message(), USAGE)
    error.show()
    sys.exit(USAGE)


def _fail(message: str, code: int) -> NoReturn:
    logs.report_end(message)
    sys.exit(code)
