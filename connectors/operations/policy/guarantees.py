"""The guarantees of an audience's releases as sentences, in English or another language.

A sentence is a template with fields, and ``say`` puts the fields in: ``str.format`` in English, ``wording(language)``
in a language with a file ``guarantees.LANGUAGE.po`` beside this module (GNU gettext, whose ``msgid`` is the English
template). A template that the file lacks stays English.
"""

from __future__ import annotations

import math
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from babel import Locale
from babel.messages.pofile import read_po

from connectors.documents.template import Figure
from stream.accounting.costs import UnitCost
from stream.accounting.day_charges import cost_of
from stream.accounting.units import UNITS as PRIVACY_UNITS
from stream.accounting.units import Neighbours, PrivacyUnit, Scope
from stream.policy.attributes import AttributeRelease
from stream.policy.document import PolicyDocument
from stream.policy.fields import EVERYBODY, decimal_string, duration_text
from stream.policy.people import THOUSAND, Provisional
from stream.records import CHANGES, HOUR
from stream.release.count_guarantees import CountGuarantee, count_guarantees
from stream.release.threshold_guarantees import Say, threshold_guarantees
from stream.release.validation import Policy

LANGUAGES = ("en", *sorted(path.name.split(".")[1] for path in Path(__file__).parent.glob("guarantees.*.po")))
"""The languages in which the guarantees can be told."""


@cache
def wording(language: str) -> Say:
    """Return what puts fields into the sentences of one of ``LANGUAGES``; a number gets the language's signs."""
    if language == "en":
        return str.format
    with (Path(__file__).parent / f"guarantees.{language}.po").open("rb") as file:
        translated = {str(each.id): str(each.string) for each in read_po(file, locale=language) if each.string}
    fields = _Fields(Locale.parse(language))
    return lambda template, /, **values: fields.vformat(translated.get(template, template), (), values)


class _Fields(string.Formatter):
    """Formats numbers as Python does, with the signs of a language."""

    def __init__(self, locale: Locale) -> None:
        signs = locale.number_symbols["latn"]
        self._signs = str.maketrans({".": str(signs["decimal"]), ",": str(signs["group"])})

    def format_field(self, value: Any, format_spec: str) -> str:
        text = format(value, format_spec)
        return text.translate(self._signs) if isinstance(value, int | float | Decimal | Figure) else text


# Names of privacy units in words, by their names in records.

_IN_WORDS = {
    Scope.TICK: ("{who} at one tick", "{who} at one tick, elsewhere instead"),
    Scope.OBSERVATION: ("one trap", "one trap, another instead"),
    Scope.WINDOWS: ("{who}, {w} windows", "{who}, {w} windows, elsewhere instead"),
    Scope.DAY: ("{who}, one day", "{who}, one day, elsewhere instead"),
    Scope.TOTAL: ("{who}, in all", ""),
}
"""Scope -> words where the unit is added or removed, and where it is replaced."""
_COUNTED_IN_WORDS = {
    Scope.TICK: ("one person in one cell: one zone at one tick", "one person in one cell, in another instead"),
    Scope.WINDOWS: (
        "one person, one cell in each of {w} windows", "one person, one cell in each of {w} windows, others instead",
    ),
    Scope.DAY: ("one person, one day", "one person, one day, elsewhere instead"),
    Scope.TOTAL: ("one person, in all", ""),
}  # fmt: skip
_ADVERSARIES = {
    "temporal": "one tick, to who knows how people move",
    "meeting": "one tick, to who knows who meets whom",
}


def _words_of(unit: PrivacyUnit, words: Mapping[Scope, tuple[str, str]]) -> str:
    added, replaced = words[unit.scope]
    text = added if unit.neighbours is Neighbours.ADD_OR_REMOVE else replaced
    return text.replace("{who}", "one person" if unit.person else "one device")


UNITS = {name: _words_of(unit, _IN_WORDS) for name, unit in PRIVACY_UNITS.items()} | _ADVERSARIES
"""Name in records -> unit in words."""
COUNTED = {
    name: _words_of(unit, _COUNTED_IN_WORDS)
    for name, unit in PRIVACY_UNITS.items()
    if unit.scope in _COUNTED_IN_WORDS and not unit.person
} | _ADVERSARIES
"""The units of a site with people counters, which know no devices: a count is of people, one each."""


def describe_unit(
    unit: str, w: int | str = "w", *, counted: bool = False, logins: bool = False, say: Say = str.format
) -> str:
    """Return a unit in words; an unknown unit keeps its name.

    ``counted`` is for a site with people counters, ``logins`` for one that counts logins.
    """
    words = (COUNTED if counted else UNITS).get(unit)
    if words is None:
        return unit.replace("_", " ")
    return say(of_logins(words) if logins else words, w=w)


def of_logins(words: str) -> str:
    """Return the words of a unit of devices for a site that counts logins."""
    return words.replace("one device", "one login").replace("one trap", "one message")


def unit_rows(
    readers: Sequence[Mapping[str, Any]], only: Collection[str] = UNITS, *, counted: bool = False, logins: bool = False
) -> Iterator[list[str]]:
    """Yield a row for each unit of an account: its name, and its cost for each reader.

    If a unit has an epsilon at a delta, that one comes first, with its delta, because it is never the larger one.
    All readers have the same units. For a site with people counters (``counted``) the units of devices are omitted.
    ``logins`` as of ``describe_unit``.
    """
    known = [unit for unit in readers[0] if unit in only and (not counted or unit in COUNTED)]
    for unit in known:
        words = describe_unit(unit, counted=counted, logins=logins)
        tight = [units["tight"].get(unit) for units in readers]
        if any(tight):
            delta = next(one["delta"] for one in tight if one)
            yield [f"{words}, δ = {delta:g}", *(_at_delta(one) for one in tight)]
        yield [words, *(str(units[unit]) for units in readers)]


def _at_delta(tight: Mapping[str, float] | None) -> str:
    """Return an epsilon, rounded up to three decimals."""
    return "-" if tight is None else f"{math.ceil(tight['epsilon'] * 1000) / 1000:g}"


DEVICES, MONTH = 1000, 30
"""Numbers in the example that explains a delta."""

_UNIT = (
    "The unit is {unit}. A person is assumed to {have} {devices} of them, and the losses at several sites add up. "
    "Everything holds for observations that the connector accepted, as long as the key is secret."
)
_COUNTED = (
    "Site {site} receives counts from people counters and no data about devices: there, one device means one person "
    "in one cell, that is, in one zone at one tick."
)
_COUNTED_DAY = (
    " Where a day is paid, it means one person's day of at most {hours:g} h in cells, as the policy declares: a count "
    "does not contain whom it counts, so Tacet cannot enforce this bound."
)
_ZEROS = {
    "reported": (
        " Its gateway reports zeros: a window without a row for each zone is refused whole, and has coverage 0. If it "
        "leaves zeros out all the same, coverage 0 shows that a zone is empty (zeros)."
    ),
    "omitted": (
        " Its gateway leaves zeros out: a zone without a row has count 0, and coverage says nothing about zones, nor "
        "whether a counter is broken (zeros)."
    ),
}
_SESSIONS = (
    "Site {site} counts sessions: one message of a device may count for {limit} after it, so it costs up to {added} "
    "epsilons of a release that is paid by the window, and {moved} where another message takes its place."
)
_BY_WINDOW = (
    "{release}: adding or removing one device at one tick changes the probability of anything that is published by at "
    "most a factor exp({epsilon}); having it elsewhere instead by exp({moved})."
)
_ATTRIBUTE = (
    "{release}: a day whose {attribute} is sensitive ({test}) is never shown, and not showing it raises the odds that "
    "it is by at most a factor exp({epsilon})."
)
NOT_PROTECTED = (
    "Many windows add up: where a window is what is paid for, a device that stays all day costs hundreds of them.",
    "Figures of traffic for operators: sums over at least eight access points and five minutes, without noise. Only "
    "operators may see them.",
    "Truth: releases count the devices that were seen, not people.",
)
_PEOPLE = (
    "{release}: estimates people from what release {counts} has published, with a band of 90 %. This costs nothing. "
    "The counts of people from which its model was made {truth}."
)
_PEOPLE_PROVISIONAL = (
    "{release}: estimates people from what release {counts} has published. {provisional} This costs nothing. "
    "The counts of people from which its model was made {truth}."
)
_PROVISIONAL = (
    "Provisional: learnt from {counts} counts, on {days} day(s); no 90 % promise. Its band reaches from the estimate "
    "divided by {factor} to {factor} times the estimate, and further by noise and a few people. After {until} there is "
    "none."
)
_PUBLIC_TRUTH = "were declared public"
_PAID_TRUTH = (
    "cost epsilon {epsilon} for one person at one moment at which people were counted, besides what the devices cost"
)
_FORECAST = (
    "{release} for {reader} at {site}: computed from the values that release {counts} has published, so it costs "
    "nothing."
)
_ROTATING = (
    "Devices that change their address count as another device after each change. Where a device uses n addresses in a "
    "day, its day costs up to n times what is printed for a device."
)
_LOGINS = (
    "Site {site} counts logins: all devices of a login count once, and where this report says device it means login. "
    "A message that bears no login belongs to the login that its device used last that day, or {others}."
)
_OTHERS = {
    "ignore": "counts for nobody",
    "count": "to the device itself, which then counts like a login",
}
_ONE_PERSON = (
    "{release} for {reader}: if a person has one account and each message of the person's day belongs to it, "
    "one person's whole day costs epsilon {day:.3g}."
)
_IDENTITIES = (
    "{release} for {reader}: only if each message of a person's day belongs to one login, one person's whole day "
    "costs epsilon {day:.3g}; with two identities, such as a login and a device that never logs in, it costs "
    "{two:.3g}, and with three {three:.3g}."
)
_ONE_MESSAGE = (
    " One message costs up to {one:.3g}, and {two:.3g} where it is a login on a device that another login used before: "
    "what follows without a login then belongs to another."
)
_OPT_OUTS = (
    "{site}: devices whose owners opted out count nowhere, from the first day that starts after they did. An opt-out "
    "is of an address and lapses when the device changes it."
)
_SHOWN_EXACTLY = (
    "An attribute's value that is not sensitive is shown exactly, about whoever caused it; a constant habit is guessed "
    "better every day."
)
_ADDRESS = "one MAC address at one site"
_UNIT_OF = {
    frozenset({True}): "one login at one site, with all its devices",
    frozenset({True, False}): "one MAC address at one site, or one login with its devices where logins count",
}
"""Whether sites count logins, of those that hear devices -> the unit; otherwise ``_ADDRESS``."""
_CARRY, _HAVE = "carry", "have"
_TESTS = {how: how + " {edge}" for how in ("after", "before", "above", "below")}
_OR = " or "
_ATTRIBUTES = {name: name.replace("_", " ") for name in ("arrival", "departure", "breaks", "occupancy_level")}
_DEVICE_DAY = (
    "{release} for {reader}: everything that is published of one device's day, from {begins} to {begins}, {bound}, "
    "costs epsilon {day:.3g} where that day is added or removed, {moved:.3g} where any part of it is changed"
    "{exceptions}."
)
_LOGIN_DAY = _DEVICE_DAY.replace("device", "login")
_HOURS = "of which it counts for at most {hours:g} h"
_ONE_VISIT = "in which it makes at most 1 visit at each level"
_VISITS = "in which it makes at most {visits} visits at each level"
_DEVICE_DELTA = (
    ", with delta {delta:.2g} for each device and day: {expected:.2g} for {devices:,} devices over {days} days"
)
_LOGIN_DELTA = _DEVICE_DELTA.replace("device and", "login and").replace("} devices", "} logins")


def guarantee_lines(policy: Policy, audience: str, say: Say = str.format) -> list[str]:
    """Return the guarantees of an audience's releases, one or two sentences each."""
    return [
        say(_UNIT, **unit_words(policy, say)),
        *counted_lines(policy, say),
        *session_lines(policy, audience, say),
        *login_lines(policy, audience, say),
        *opt_out_lines(policy, say),
        *_counts(policy, audience, say),
        *_days(policy, audience, say),
        *(guarantee.sentence(say) for guarantee in threshold_guarantees(policy) if audience in guarantee.audiences),
        *people_lines(policy, audience, say),
        *forecast_lines(policy, audience, say),
    ]


def unit_words(policy: PolicyDocument, say: Say = str.format) -> dict[str, str]:
    """Return what a policy's unit is, how many of them a person is assumed to have, and the verb that says so."""
    by_login = {site.counts_logins for site in policy.site.values() if site.feed == "devices"}
    return {
        "unit": say(_UNIT_OF.get(frozenset(by_login), _ADDRESS)), "have": say(_HAVE if True in by_login else _CARRY),
        "devices": str(policy.privacy.devices_per_person),
    }  # fmt: skip


def people_lines(policy: PolicyDocument, audience: str | None = None, say: Say = str.format) -> Iterator[str]:
    """Yield, for each stream of people of an audience or of all, what it and its ground truth cost."""
    for model, name in ((each.model, each.release_name) for each in policy.people):
        if audience in {None, model.audience}:
            truth = say(_PUBLIC_TRUTH) if model.truth.public else say(_PAID_TRUTH, epsilon=Figure(model.truth.epsilon))
            if model.provisional is None:
                yield say(_PEOPLE, release=name, counts=model.release, truth=truth)
                continue
            sentence = provisional_sentence(model.provisional, say)
            yield say(_PEOPLE_PROVISIONAL, release=name, counts=model.release, truth=truth, provisional=sentence)


def provisional_sentence(given: Provisional, say: Say = str.format) -> str:
    """Return from how little a provisional model was learnt, what its band is, and how long it holds."""
    factor = Figure(f"{given.factor / THOUSAND:.1f}")
    return say(
        _PROVISIONAL, counts=Figure(given.counts), days=Figure(given.days), factor=factor, until=given.until.isoformat()
    )


def forecast_lines(policy: PolicyDocument, audience: str | None = None, say: Say = str.format) -> Iterator[str]:
    """Yield, for each forecast of an audience or of all, what it is computed from."""
    for each in policy.forecast:
        if audience in {None, each.audience}:
            yield say(_FORECAST, release=each.release_name, reader=each.audience, site=each.site, counts=each.release)


def counted_lines(policy: Policy, say: Say = str.format) -> Iterator[str]:
    """Yield, for each site with people counters, the privacy unit; the text is the same wherever it is shown."""
    for name, site in policy.site.items():
        if site.feed == "counts":
            hours = site.contribution_ticks * site.tick / HOUR
            by_day = "" if site.day_starts is None else say(_COUNTED_DAY, hours=hours)
            yield say(_COUNTED, site=name) + by_day + say(_ZEROS[site.zeros])


def session_lines(policy: Policy, audience: str = EVERYBODY, say: Say = str.format) -> Iterator[str]:
    """Yield, for each site with sessions that pays by the window for counts of an audience, what one message costs."""
    paid = {
        guarantee.site
        for guarantee in count_guarantees(policy)
        if guarantee.terms is None and guarantee.reader == audience
    }
    for name in policy.site:
        site = policy.site[name]
        if site.has_sessions and name in paid:
            added = 2 * site.ticks_per_observation
            limit = spaced(duration_text(site.session_limit))
            yield say(_SESSIONS, site=name, limit=limit, added=added, moved=2 * added)


def login_lines(policy: Policy, audience: str = EVERYBODY, say: Say = str.format) -> Iterator[str]:
    """Yield for each site that counts logins what that means, and what a person's day and a message cost there."""
    for name, site in policy.site.items():
        if site.counts_logins:
            yield say(_LOGINS, site=name, others=say(_OTHERS[site.others]))
    for guarantee in count_guarantees(policy):
        if guarantee.reader == audience and policy.site[guarantee.site].counts_logins:
            yield _day_of_a_person(policy, guarantee, say)


def _day_of_a_person(policy: Policy, guarantee: CountGuarantee, say: Say) -> str:
    ignored, tight = policy.site[guarantee.site].others == "ignore", guarantee.tight
    two, three = (identities_cost(guarantee, number) for number in (2, 3))
    sentence = say(
        _ONE_PERSON if ignored else _IDENTITIES,
        release=guarantee.release, reader=guarantee.reader, day=tight["device_day"], two=two, three=three,
    )  # fmt: skip
    return sentence + say(_ONE_MESSAGE, one=tight["device_day_moved"], two=tight["observation"])


def identities_cost(guarantee: CountGuarantee, number: int) -> float:
    """Return the epsilon, at the guarantee's delta, of a day of a person who has this number of identities."""
    assert guarantee.terms is not None  # noqa: S101 - a site that counts logins pays by the day
    cost = UnitCost(cost_of(guarantee.terms), number)
    return float(cost.pure) if not math.isinf(cost.pure) else cost.composed(guarantee.delta)


def spaced(duration: str) -> str:
    """Return a duration with a space before its unit: ``"12 h"`` for ``"12h"``."""
    return duration.replace("h", " h").replace("min", " min")


def not_protected(policy: Policy, audience: str, say: Say = str.format) -> list[str]:
    """Return what an audience's releases do not guarantee."""
    asked = any(True for _ in _attributes(policy, audience))
    exactly = [say(_SHOWN_EXACTLY)] if asked else []
    return [*exactly, *rotating_lines(policy, say), *(say(each) for each in NOT_PROTECTED)]


def rotating_lines(policy: PolicyDocument, say: Say = str.format) -> Iterator[str]:
    """Yield what addresses that change do, if a site counts devices that may change theirs."""
    if any(site.feed == "devices" and site.randomised == "count" for site in policy.site.values()):
        yield say(_ROTATING)


def opt_out_lines(policy: PolicyDocument, say: Say = str.format) -> Iterator[str]:
    """Yield for each site with a list of opt-outs what it does."""
    for name, site in policy.site.items():
        if site.opt_out == "list":
            yield say(_OPT_OUTS, site=name)


def _counts(policy: Policy, audience: str, say: Say) -> Iterator[str]:
    for guarantee in count_guarantees(policy):
        if guarantee.reader != audience:
            continue
        if guarantee.terms is not None:
            yield signed_sentence(policy, guarantee, say)
        else:
            epsilon, moved = (Figure(_number(guarantee.units[unit])) for unit in ("presence_tuple", "tuple_moved"))
            yield say(_BY_WINDOW, release=guarantee.release, epsilon=epsilon, moved=moved)


def _days(policy: Policy, audience: str, say: Say) -> Iterator[str]:
    for release, name in _attributes(policy, audience):
        rule = release.attributes[name]
        edges = rule.sensitive.model_dump(exclude_none=True).items()
        test = say(_OR).join(say(_TESTS[how], edge=edge) for how, edge in edges)
        epsilon = Figure(decimal_string(rule.epsilon[audience]))
        attribute = say(_ATTRIBUTES.get(name, name.replace("_", " ")))
        yield say(_ATTRIBUTE, release=release.name, attribute=attribute, test=test, epsilon=epsilon)


def _attributes(policy: Policy, audience: str) -> Iterator[tuple[AttributeRelease, str]]:
    for release in policy.release:
        if isinstance(release, AttributeRelease):
            yield from ((release, name) for name, rule in release.attributes.items() if audience in rule.epsilon)


def _number(epsilon: Fraction | float) -> str:
    return decimal_string(epsilon) if isinstance(epsilon, Fraction) else f"{epsilon:g}"


def signed_sentence(policy: Policy, guarantee: CountGuarantee, say: Say = str.format) -> str:
    """Return the sentence that a privacy officer can sign for a release that is charged per day."""
    site, day = policy.site[guarantee.site], policy.site[guarantee.site].contribution
    bound = say(_HOURS, hours=(day or 0) / HOUR)
    if guarantee.terms is not None and guarantee.terms.noise == CHANGES:
        bound = say(_ONE_VISIT if site.visits == 1 else _VISITS, visits=site.visits)
    exceptions = ""
    if guarantee.delta:
        # What a delta means, for one device or login and for a building over a month.
        delta = float(guarantee.delta)
        exceptions = say(
            _LOGIN_DELTA if site.counts_logins else _DEVICE_DELTA,
            delta=delta, expected=delta * DEVICES * MONTH, devices=DEVICES, days=MONTH,
        )  # fmt: skip
    return say(
        _LOGIN_DAY if site.counts_logins else _DEVICE_DAY,
        release=guarantee.release, reader=guarantee.reader, begins=site.day_starts, bound=bound,
        day=guarantee.tight["device_day"], moved=guarantee.tight["device_day_moved"], exceptions=exceptions,
    )  # fmt: skip
