"""The facts of a dossier as tables: of the policy, its account and its installation.

Every number of a guarantee is taken from ``guarantee_figures``, which ``tacet policy show`` prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from connectors.documents.template import Figure, Row, Tables, Template, Value, Word
from connectors.operations.account import AccountSummary, spent_by_reader
from connectors.operations.policy.guarantee_figures import CountFigures, PseudonymChange, guarantee_figures
from connectors.operations.policy.guarantees import spaced, unit_rows
from connectors.storage.kafka.topic_settings import DAY_MS, FOR_EVER, topic_config
from connectors.storage.kafka.topics import BESIDES, topic_names
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.document import Release, audiences_of
from stream.policy.fields import EVERYBODY, decimal_string, duration_text
from stream.policy.forecasts import Forecast
from stream.policy.sites import Site
from stream.records import MINUTE, SECOND, Micros
from stream.release.attribute_guarantees import AttributeGuarantee
from stream.release.threshold_guarantees import ThresholdGuarantee
from stream.release.validation import Policy

FEW = 4
"""A room for this many people or fewer has few regular users: what is published of it is about persons."""
OF_A_PERSON = ("arrival", "departure", "breaks")
"""Attributes that tell when somebody comes and goes."""

OF_A_DAY = ("device_day", "device_day_moved", "person_day")
INPUTS = ("snmp", "snmp3", "radius", "hooks", "polls")
"""Ways in which observations arrive, by the secrets that they need."""
SPENT = ("device_day", "person_day", "device_total", "person_total")
"""Units of the account that a dossier lists."""


class Installation(NamedTuple):
    """How the pipeline runs, as far as the command was told."""

    store: bool = False
    """Whether releases are in an embedded store."""
    kafka: bool = False
    """Whether releases are on Kafka."""
    encrypted: bool = False
    """Whether brokers are reached over TLS."""
    inputs: Sequence[str] = ()
    """Those of ``INPUTS`` of which a file of secrets is set."""
    public_body: bool | None = None
    """Whether the controller is a public authority in the performance of its tasks; None: not said."""


def facts(policy: Policy, installation: Installation, account: AccountSummary | None = None) -> Tables:
    """Return all tables of a dossier.

    Args:
        policy: the policy that the dossier is about.
        installation: how it runs.
        account: what ``tacet account --json`` prints, if there is an account.
    """
    guarantees = guarantee_figures(policy)
    return {
        "policy": [Row("policy", {
            "version": policy.version, "devices": Figure(policy.privacy.devices_per_person),
            "w": str(policy.privacy.w), "max_factor": Figure(f"{policy.privacy.max_factor:.4g}"),
        })],
        **_sites(policy),
        "audiences": [_audience(policy, each.name, each.description) for each in policy.audience],
        "public": [_audience(policy, each.name, each.description) for each in policy.audience if each.public],
        **_counts(policy, guarantees.counts),
        "whose": _all_of_whom(policy, guarantees.counts),
        **_budgets(policy),
        **_attributes(policy, guarantees.attributes),
        "few_users": list(_few_users(policy)),
        **_thresholds(policy, guarantees.thresholds),
        **_people(policy),
        "forecasts": [_forecast(each) for each in policy.forecast],
        **_pseudonyms(guarantees.pseudonyms),
        **_installed(policy, installation),
        "account": [] if account is None else list(_spent(account)),
    }  # fmt: skip


def dossier_languages() -> list[str]:
    """Return the languages in which a dossier can be written."""
    return sorted(path.name.split(".")[1] for path in Path(__file__).parent.glob("dossier.*.md"))


def dossier_template(language: str) -> Template:
    """Return the words of a dossier in a language."""
    return Template.read(Path(__file__).parent / f"dossier.{language}.md")


def _sites(policy: Policy) -> dict[str, list[Row]]:
    def those(condition: Callable[[Site], bool]) -> list[Row]:
        return [Row(name, _site(name, site)) for name, site in policy.site.items() if condition(site)]

    return {
        "sites": those(lambda _: True),
        "events": those(lambda site: site.feed == "devices" and not site.has_sessions),
        "sessions": those(lambda site: site.has_sessions),
        "counters": those(lambda site: site.feed == "counts"),
        "bounded": those(lambda site: site.contribution is not None),
        "visited": [
            Row(name, _site(name, site)) for name, site in policy.site.items() if _counts_changes(policy, name)
        ],
        "logins": those(lambda site: site.counts_logins),
        "others_counted": those(lambda site: site.counts_logins and site.others == "count"),
        "opt_out": those(lambda site: site.opt_out == "list"),
        "no_opt_out": those(lambda site: site.opt_out != "list" and site.feed == "devices"),
        "rotating": those(lambda site: site.feed == "devices" and site.randomised == "count"),
    }


def _counts_changes(policy: Policy, site: str) -> bool:
    counts = [release for release in policy.release if isinstance(release, CountRelease) and release.by_changes]
    return any(policy.zones_of(release, site) for release in counts)


def _site(name: str, site: Site) -> dict[str, Value]:
    return {
        "site": name, "name": site.title(name), "timezone": site.timezone, "zones": str(len(site.zones)),
        "floors": str(len({zone.floor for zone in site.zones})), "sources": str(len(site.sources)),
        "tick": _span(site.tick), "validity": _span(site.validity), "session_limit": _span(site.session_limit),
        "lateness": _span(site.lateness), "max_devices": str(site.max_devices),
        "day_starts": site.day_starts or "00:00 UTC",
    }  # fmt: skip


def _span(duration: Micros) -> str:
    return f"{duration / SECOND:g} s" if duration % MINUTE else spaced(duration_text(duration))


def _audience(policy: Policy, name: str, description: str) -> Row:
    releases = [each.name for each in policy.release if name in audiences_of(each)]
    return Row(name, {"audience": name, "description": description or name, "releases": ", ".join(releases)})


def _counts(policy: Policy, counts: Sequence[CountFigures]) -> dict[str, list[Row]]:
    window, day = list[Row](), list[Row]()
    for each in counts:
        guarantee = each.guarantee
        key = f"{guarantee.site}/{guarantee.release}/{guarantee.reader}"
        common: dict[str, Value] = {
            "site": guarantee.site, "release": guarantee.release, "mechanism": guarantee.mechanism,
            "zones": str(guarantee.zones), "reader": _reader(guarantee.reader), **_whose(policy, guarantee.site),
        }  # fmt: skip
        if each.day is None:
            units = ("presence_tuple", *OF_A_DAY)
            window.append(Row(key, common | {unit: Figure(decimal_string(guarantee.units[unit])) for unit in units}))
        else:
            tight = {unit: Figure(f"{epsilon:.3g}") for unit, epsilon in each.day.tight.items()}
            delta = f"{float(each.day.delta):.2g}" if each.day.delta else "0"
            scales = Figure("; ".join(f"{scale:.4g}" for scale in each.day.noise_scale))
            noise: dict[str, Value] = {"delta": Figure(delta), "noise": each.day.noise, "scales": scales}
            day.append(Row(key, common | {unit: tight[unit] for unit in OF_A_DAY} | noise))
    together = [row for row in (*window, *day) if row.fields["reader"] == _reader(EVERYBODY)]
    return {"window_counts": window, "day_counts": day, "day_deltas": [r for r in day if r.fields["delta"] != "0"],
            "counts": together}  # fmt: skip


def _budgets(policy: Policy) -> dict[str, list[Row]]:
    found, without = list[Row](), list[Row]()
    for release in policy.release:
        if not isinstance(release, CountRelease) or release.by_day:
            continue
        for audience in audiences_of(release):
            fields = {"release": release.name, "audience": audience, "days": str(release.refresh_days)}
            budget = release.daily_budget.get(audience)
            text = "" if budget is None else decimal_string(budget)
            row = Row(f"{release.name}/{audience}", fields | {"budget": Figure(text)})
            (without if budget is None else found).append(row)
    return {"budgets": found, "no_budgets": without}


def _attributes(policy: Policy, odds: Sequence[AttributeGuarantee]) -> dict[str, list[Row]]:
    rules, coming = list[Row](), list[Row]()
    for release in policy.release:
        if isinstance(release, AttributeRelease):
            zones = sum(len(policy.zones_of(release, site)) for site in policy.site)
            for name, rule in release.attributes.items():
                edges = rule.sensitive.model_dump(exclude_none=True).items()
                test = [part for how, edge in edges for part in (Word("or"), Word(how), Figure(edge))][1:]
                row = Row(f"{release.name}/{name}", {
                    "release": release.name, "attribute": Word(name), "sensitive": test,
                    "zones": str(zones), "audiences": ", ".join(rule.epsilon),
                })  # fmt: skip
                rules.append(row)
                if name in OF_A_PERSON:
                    coming.append(row)
    return {"attributes": rules, "coming": coming, "odds": [_odds(each) for each in odds]}


def _odds(each: AttributeGuarantee) -> Row:
    def factor(value: float) -> Figure:
        return Figure(f"{value:.4g}")

    def habit(value: float) -> Figure:
        return Figure("> 1 000 000") if math.isfinite(value) and value > 1_000_000 else factor(value)

    return Row(f"{each.site}/{each.release}/{each.attribute}/{each.reader}", {
        "site": each.site, "release": each.release, "attribute": Word(each.attribute),
        "reader": _reader(each.reader), "epsilon": Figure(decimal_string(each.epsilon)), "factor": factor(each.factor),
        "with_counts": factor(each.with_counts), "habit_5": habit(each.habit[5]), "habit_20": habit(each.habit[20]),
    })  # fmt: skip


def _reader(reader: str) -> str:
    return Word("everybody") if reader == EVERYBODY else reader


def _thresholds(policy: Policy, streams: Sequence[ThresholdGuarantee]) -> dict[str, list[Row]]:
    def those(condition: Callable[[ThresholdGuarantee], bool]) -> list[Row]:
        return [
            Row(f"{p.site}/{p.release}", {**_threshold(p), **_whose(policy, p.site)}) for p in streams if condition(p)
        ]

    return {
        "thresholds": those(lambda _: True),
        "thresholds_paid": those(lambda p: p.events is not None),
        "thresholds_free": those(lambda p: p.events is None),
        "thresholds_given": those(lambda p: p.events is not None and bool(p.given)),
        "thresholds_near": those(lambda p: p.empty.distance < p.quiet.distance),
        "thresholds_near_paid": those(lambda p: p.events is not None and p.empty.distance < p.quiet.distance),
    }


def _threshold(guarantee: ThresholdGuarantee) -> dict[str, Value]:
    above = guarantee.alert == "above"
    return {
        "site": guarantee.site, "release": guarantee.release, "audiences": ", ".join(guarantee.audiences),
        "alert": Word(f"side_{guarantee.alert}"), "other_side": Word("side_below" if above else "side_above"),
        "within": str(guarantee.within // MINUTE), "cooldown": str(guarantee.cooldown // MINUTE),
        "probability": Figure(f"{float(1 - guarantee.miss):g}"), "distance": str(guarantee.quiet.distance),
        "false_alarms": Figure(f"{guarantee.quiet.false_alarms:.2g}"),
        "denied": Figure(f"{guarantee.quiet.denied:.2g}"),
        "events": str(guarantee.events), "run": Figure(decimal_string(guarantee.run)),
        "day": Figure(decimal_string(guarantee.day)), "given": guarantee.given[0] if guarantee.given else "",
        "nearest": Word("node_empty" if above else "node_twice"),
        "nearest_false_alarms": Figure(f"{guarantee.empty.false_alarms:.2g}"),
        "nearest_denied": Figure(f"{guarantee.empty.denied:.2g}"),
    }  # fmt: skip


def _whose(policy: Policy, site: str) -> dict[str, Value]:
    """Return whose day is paid for at a site."""
    who = _who(policy.site[site])
    return {"who": Word(who), "of_whom": Word(f"of_{who}"), "counts_of": Word(f"counts_of_{who}")}


def _who(site: Site) -> str:
    return "person" if site.feed == "counts" else "login" if site.counts_logins else "device"


def _all_of_whom(policy: Policy, counts: Sequence[CountFigures]) -> list[Row]:
    """Return one row with all that the table of counts is about."""
    found = sorted({_who(policy.site[each.guarantee.site]) for each in counts})
    one = [part for who in found for part in (Word("or"), Word(f"one_{who}"))][1:]
    return [Row("policy", {"one": one})] if found else []


def _forecast(each: Forecast) -> Row:
    fields = {"forecast": each.release_name, "release": each.release, "audience": each.audience, "site": each.site}
    return Row(f"{each.site}/{each.release_name}/{each.audience}", fields)


def _people(policy: Policy) -> dict[str, list[Row]]:
    public, paid, provisional = list[Row](), list[Row](), list[Row]()
    for model, name in ((each.model, each.release_name) for each in policy.people):
        row = Row(f"{name}/{model.audience}", {
            "release": name, "counts": model.release, "epsilon": Figure(model.truth.epsilon),
        })  # fmt: skip
        (public if model.truth.public else paid).append(row)
        if model.provisional is not None:
            provisional.append(row)
    full = [row for row in (*public, *paid) if row not in provisional]
    return {
        "people": [*public, *paid], "people_full": full, "people_provisional": provisional,
        "people_public": public, "people_paid": paid,
    }  # fmt: skip


def _few_users(policy: Policy) -> Iterator[Row]:
    """Yield each release that publishes something about single rooms with few regular users."""
    for name in policy.site:
        for release in policy.release:
            rooms = [zone for zone in policy.zones_of(release, name) if zone.capacity <= FEW]
            if rooms and _of_single(release):
                listed = ", ".join(f"{zone.title} ({zone.capacity})" for zone in rooms)
                fields = {"site": name, "release": release.name, "rooms": listed, "number": str(len(rooms))}
                yield Row(f"{name}/{release.name}", fields)


def _of_single(release: Release) -> bool:
    """Whether a release publishes something about single zones."""
    if isinstance(release, CountRelease):
        return "zone" in release.levels_up
    return isinstance(release, AttributeRelease) or release.level == "zone"


def _pseudonyms(names: PseudonymChange) -> dict[str, list[Row]]:
    ttl, by_site = names.ttl_seconds, names.day_starts
    return {
        "names_of_day": [Row("day", {})] if ttl is None and not by_site else [],
        "names_of_site": [Row(site, {"site": site, "day_starts": at}) for site, at in by_site.items()],
        "names_of_salt": [] if ttl is None else [Row("salt", {"seconds": f"{ttl:g}"})],
    }


def _installed(policy: Policy, installation: Installation) -> dict[str, list[Row]]:
    def if_so(name: str, condition: bool) -> list[Row]:
        return [Row(name, {})] if condition else []

    return {
        "store": if_so("store", installation.store),
        "kafka": if_so("kafka", installation.kafka),
        "kafka_encrypted": if_so("kafka", installation.kafka and installation.encrypted),
        "kafka_clear": if_so("kafka", installation.kafka and not installation.encrypted),
        "topics": [_topic(name) for name in (*topic_names(policy), *BESIDES)] if installation.kafka else [],
        "public_body": if_so("public", installation.public_body is True),
        "private_body": if_so("private", installation.public_body is False),
        "unknown_body": if_so("unknown", installation.public_body is None),
        "true_stays": if_so("presence", policy.restricted.presence),
        "true_counts": if_so("occupancy", policy.restricted.occupancy),
        **{f"by_{way}": if_so(way, way in installation.inputs) for way in INPUTS},
    }  # fmt: skip


def _topic(name: str) -> Row:
    config = topic_config(name)
    retention = int(config.get("retention.ms", FOR_EVER))
    compacted = "compact" in config["cleanup.policy"]
    days = "∞" if retention == FOR_EVER else f"{retention / DAY_MS:g} d"
    what = Word(f"topic_{name.split('.')[1]}")
    return Row(name, {"topic": name, "what": what, "kept": f"1/key, {days}" if compacted else days})


def _spent(account: AccountSummary) -> Iterator[Row]:
    """Yield what a person's and a device's day have cost so far, for every reader."""
    for name, site in account["sites"].items():
        last = site["last"]
        counted = site.get("feed") == "counts"
        who = "person" if counted else "login" if site.get("identity") == "login" else "device"
        readers = spent_by_reader(last)
        for unit in SPENT:
            words = Word(unit.replace("device", who))
            for row in unit_rows(list(readers.values()), (unit,), counted=counted):
                delta = row[0].partition("δ = ")[2]
                for reader, epsilon in zip(readers, row[1:], strict=True):
                    if epsilon in {"-", "inf"}:  # no such figure; the unit has another one
                        continue
                    yield Row(f"{name}/{unit}{'/delta' if delta else ''}/{reader}", {
                        "site": name, "unit": (words, Figure(f"(δ = {delta})")) if delta else words,
                        "reader": _reader(reader), "epsilon": Figure(epsilon), "until": last["window_end"],
                    })  # fmt: skip
