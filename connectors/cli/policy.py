"""policy: a first policy, its checks, and what it promises."""

from __future__ import annotations

import click

from connectors.cli.lazy_group import LazyGroup, Verb

_SECTIONS = {
    "Commands": {
        "init": Verb("connectors.cli.policy_init", "Write a policy with safe defaults for the access points of a list"),
        "check": Verb("connectors.cli.policy_check", "Refuse a policy that breaks a rule"),
        "show": Verb("connectors.cli.policy_show", "Print what is promised"),
        "plan": Verb(
            "connectors.cli.policy_plan",
            "Report, before anything runs, what a day will cost and how good its releases will be",
        ),
        "diff": Verb("connectors.cli.policy_diff", "Say what the policy NEW changes against OLD"),
        "contracts": Verb("connectors.cli.policy_check", "Write what is published as contracts"),
    }
}


@click.group(cls=LazyGroup, sections=_SECTIONS)
def policy() -> None:
    """Write a first policy, check one, or print what it promises."""
