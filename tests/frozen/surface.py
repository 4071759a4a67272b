"""The public surface as JSON: names that others rely on, and the structure of what every verb prints.

Texts are left out. ``python -m tests.frozen`` writes the files that ``test_frozen.py`` compares with.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import orjson
import pytest
import yaml

import tacet
from connectors.cli import main
from connectors.cli.main import tacet as command_line
from connectors.monitoring.catalogue import METRICS
from connectors.runtime.logs import FIELDS
from connectors.serve.app import OPERATIONS
from connectors.serve.openapi import document
from stream import schemas
from stream.policy.document import PolicyDocument
from stream.settings import Settings
from tests.acceptance import command_line as scenario
from tests.support.day_policies import day_release, day_site, shared
from tests.support.small_building import ATTRIBUTES, COUNTS, building, outputs_of, people
from tests.support.verb_tree import all_verbs

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
TEXTS = {"description", "title", "summary", "examples", "example"}


def names() -> dict[str, Any]:
    """Return the names that programs, operators and policies use."""
    return {
        "tacet": sorted(tacet.__all__),
        "verbs": {verb: sorted(_options(command)) for verb, command in sorted(all_verbs(command_line).items())},
        "environment": sorted(f"TACET_{name.upper()}" for name in Settings.model_fields),
        "topics": sorted(
            value for name, value in vars(schemas).items() if name.isupper() and str(value).startswith("tacet.")
        ),
        "metrics": {metric.name: [metric.kind, *metric.labels] for metric in METRICS},
        "log fields": sorted(FIELDS),
        "exit codes": [main.USAGE, main.DATA, main.OTHER],
        "policy": sorted(_keys(PolicyDocument.model_json_schema())),
        "units": sorted(path.name for path in (ROOT / "deploy/systemd").iterdir()),
        "chart": sorted(_paths(yaml.safe_load((ROOT / "deploy/helm/tacet/values.yaml").read_text()))),
        "contracts": {
            path.name: sorted(_keys(json.loads(path.read_text())))
            for path in (ROOT / "deploy/contracts").glob("*.json")
        },
        "http": _without_texts(document(OPERATIONS, "cookie")),
    }


def structures(folder: Path, run: Callable[..., Any]) -> dict[str, Any]:
    """Return exit code and structure of what each verb prints with ``--json``, in one small installation.

    Args:
        folder: an empty folder to work in.
        run: runs the command line in this process.
    """
    (folder / "policy.toml").write_text(scenario.POLICY)
    (folder / "other.toml").write_text(scenario.POLICY.replace('public = "0.5"', 'public = "0.25"'))
    (folder / "o.csv").write_text(scenario.OBSERVATIONS)
    (folder / "counts.csv").write_text("time,zone,count\n2026-03-02T10:05:00Z,hall,3\n2026-03-02T10:10:00Z,hall,4\n")
    (folder / "tables.csv").write_text("predicate,count\na,30\nb,2\n")
    (folder / "thresholds.csv").write_text("predicate,threshold\na,20\nb,20\n")
    (folder / "model.json").write_text('{"covariance": [[1, 0.5], [0.5, 2]], "range": 2, "scale": 1.5}')
    range_ = ("--from", "2026-03-02T10:00:00Z", "--to", "2026-03-02T10:40:00Z")
    policy, key = ("--policy", folder / "policy.toml"), ("--key-file", folder / "key")
    store = ("--store", folder / "store")
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("key create", (folder / "key", "--laboratory")),
        ("policy check", (folder / "policy.toml", "--json")),
        ("policy show", (folder / "policy.toml", "--json")),
        ("policy diff", (folder / "policy.toml", folder / "other.toml", "--json")),
        ("simulate", ("--scale", "0.05", "--zones", "8", "--out", folder / "s.csv", "--json")),
        ("run", (*policy, *key, *store, "--observations", folder / "o.csv", *range_, "--json")),
        ("subscribe", (*store, "--audience", "facilities", "--from-start", "--until-end", "--json")),
        ("account", (*store, "--json")),
        ("status", (*store, *policy, "--json")),
        ("audit verify", (*store, *key, "--json")),
        ("backfill", (folder / "o.csv", *policy, *key, *store, *range_, "--json")),
        ("recover", (*store, *policy, *key, "--json")),
        ("doctor", (*policy, *key, *store, "--json")),
        ("replay", (folder / "o.csv", *policy, *key, "--out", folder / "replayed", *range_, "--json")),
        ("release", (folder / "counts.csv", "--mechanism", "laplace", "--epsilon", "1", *key,
                     "--out", folder / "released.csv", "--json")),
        ("store backup", (*store, "--out", folder / "backup", "--json")),
        ("token new", ("--tokens", folder / "tokens", "--name", "screen", "--audience", "public")),
        ("token list", ("--tokens", folder / "tokens", "--json")),
        ("topics acls", (*policy, "--json")),
        ("leakage gaussian", (folder / "model.json", "--json")),
        ("account", ("--store", folder / "nowhere", "--json")),
        ("policy check", (folder / "o.csv", "--json")),
    ]  # fmt: skip
    found: dict[str, Any] = {}
    for number, (verb, arguments) in enumerate(calls):
        done = run(*verb.split(), *arguments)
        printed = [_structure(orjson.loads(line)) for line in done.out.splitlines() if line.startswith(("{", "["))]
        found[f"{number:02d} {verb}"] = {"exit code": done.code, "prints": _merged(printed)}
    return found


def released() -> dict[str, str]:
    """Return a digest of everything that is published, by policy and topic, under fixed keys.

    The version of the policy is left out: it is a digest of the policy's text.
    """
    day = day_release(mechanism="plain", more=shared(zone="0.5", building="0.5"))
    policies = {
        "by window": building(),
        "by day": building(releases=day, site=day_site()),
        "filtered day": building(releases=day_release(mechanism="filter", more='revise = ["1h"]\n'), site=day_site()),
        "attributes": building(releases=COUNTS + ATTRIBUTES, tick="5min"),
    }
    found: dict[str, Any] = {}
    for name, policy in policies.items():
        digests: dict[str, Any] = {}
        version = policy.version.encode()
        for out in outputs_of(policy, people(), presence=True, occupancy=True):
            text = out.value.replace(version, b"")
            digests.setdefault(out.topic, hashlib.sha256()).update(f"{out.id} {out.time} ".encode() + text + b"\n")
        found |= {f"{name}: {topic}": digest.hexdigest() for topic, digest in digests.items()}
    return dict(sorted(found.items()))


def fixed_secrets(patch: pytest.MonkeyPatch) -> None:
    """Make keys that are the same each time."""
    patch.setattr(secrets, "token_bytes", lambda count=32: bytes(range(count)))
    patch.setattr(secrets, "token_hex", lambda count=32: bytes(range(count)).hex())


def _options(command: click.Command) -> Iterator[str]:
    for each in command.params:
        yield from each.opts + each.secondary_opts


def _keys(schema: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted path of every property that a JSON schema names."""
    if isinstance(schema, list):
        for each in schema:
            yield from _keys(each, path)
    elif isinstance(schema, dict):
        for name, each in schema.items():
            if name == "properties" and isinstance(each, dict):
                for key, inner in each.items():
                    yield f"{path}.{key}"
                    yield from _keys(inner, f"{path}.{key}")
            elif name == "$defs":
                for key, inner in each.items():
                    yield from _keys(inner, key)
            else:
                yield from _keys(each, path)


def _paths(values: Any, path: str = "") -> Iterator[str]:
    if not isinstance(values, dict) or not values:
        yield path
        return
    for key, each in values.items():
        yield from _paths(each, f"{path}.{key}")


def _without_texts(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_texts(each) for key, each in node.items() if key not in TEXTS}
    if isinstance(node, list):
        return [_without_texts(each) for each in node]
    return node


def _structure(value: Any) -> Any:
    """Return an object's keys and the types of its values; of a list, what its entries have together."""
    if isinstance(value, dict):
        return {key: _structure(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_merged([_structure(each) for each in value])]
    return "number" if type(value) in {int, float} else type(value).__name__


def _merged(found: Iterable[Any]) -> Any:
    distinct = {json.dumps(each, sort_keys=True): each for each in found}
    return [distinct[key] for key in sorted(distinct)]
