"""What an audience's releases promise, in sentences: the same in 'policy show', in the demo and on the page."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from stream.policy.document import AttributeRelease, Policy, decimal_string
from stream.records import HOUR
from stream.release.count_promises import CountPromise, count_promises
from stream.release.threshold_promises import threshold_promises

DEVICES, MONTH = 1000, 30
"""Of the example that says what a delta comes to."""

_UNIT = (
    "The unit is one MAC address at one site. A person is taken to carry {devices} of them, and what several sites "
    "give away adds up. Everything holds for observations that the connector accepted, and while the key is secret."
)
_COUNTED = (
    "Site {site} is told counts by people counters and knows no device: there one device stands for one person in one "
    "cell, that is in one zone at one tick."
)
_COUNTED_DAY = (
    " Where a day is paid, it stands for one person's day of at most {hours} h in cells, as the policy declares: a "
    "count does not say whom it is of, so nothing here can bound that."
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
    "What operators are shown of traffic: sums over eight access points and five minutes at least, without noise. They "
    "are for operators alone.",
    "Truth: the releases speak of the devices that were heard, not of people.",
)
_SHOWN_EXACTLY = (
    "An attribute's value that is not sensitive is shown exactly, about whoever caused it; a constant habit is guessed "
    "better every day."
)


def promise_lines(policy: Policy, audience: str) -> list[str]:
    """Return what is promised of an audience's releases, a sentence or two each."""
    return [
        _UNIT.format(devices=policy.privacy.devices_per_person),
        *counted_lines(policy),
        *_counts(policy, audience),
        *_days(policy, audience),
        *(promise.sentence() for promise in threshold_promises(policy) if audience in promise.audiences),
    ]


def counted_lines(policy: Policy) -> Iterator[str]:
    """Yield, for each site that is told counts, what the unit is there: the same everywhere it is told."""
    for name, site in policy.site.items():
        if site.feed == "counts":
            hours = site.contribution_ticks * site.tick / HOUR
            by_day = "" if site.day_starts is None else _COUNTED_DAY.format(hours=f"{hours:g}")
            yield _COUNTED.format(site=name) + by_day


def not_protected(policy: Policy, audience: str) -> list[str]:
    """Return what an audience's releases do not promise."""
    asked = any(True for _ in _attributes(policy, audience))
    return [*([_SHOWN_EXACTLY] if asked else []), *NOT_PROTECTED]


def _counts(policy: Policy, audience: str) -> Iterator[str]:
    for promise in count_promises(policy):
        if promise.reader != audience:
            continue
        if promise.terms is not None:
            yield signed_sentence(policy, promise)
        else:
            epsilon, moved = (_number(promise.units[unit]) for unit in ("presence_tuple", "tuple_moved"))
            yield _BY_WINDOW.format(release=promise.release, epsilon=epsilon, moved=moved)


def _days(policy: Policy, audience: str) -> Iterator[str]:
    for release, name in _attributes(policy, audience):
        rule = release.attributes[name]
        test = " or ".join(f"{how} {edge}" for how, edge in rule.sensitive.model_dump(exclude_none=True).items())
        epsilon = decimal_string(rule.epsilon[audience])
        yield _ATTRIBUTE.format(release=release.name, attribute=name.replace("_", " "), test=test, epsilon=epsilon)


def _attributes(policy: Policy, audience: str) -> Iterator[tuple[AttributeRelease, str]]:
    for release in policy.release:
        if isinstance(release, AttributeRelease):
            yield from ((release, name) for name, rule in release.attributes.items() if audience in rule.epsilon)


def _number(epsilon: Fraction | float) -> str:
    return decimal_string(epsilon) if isinstance(epsilon, Fraction) else f"{epsilon:g}"


def _exceptions(delta: Fraction) -> str:
    """Return what a delta means, for one device and for a building over a month."""
    many = float(delta) * DEVICES * MONTH
    return (
        f"with delta {float(delta):.2g} for each device and day: {many:.2g} for {DEVICES:,} devices over {MONTH} days"
    )


def signed_sentence(policy: Policy, promise: CountPromise) -> str:
    """Return what a privacy officer can sign of a release that is paid by the day."""
    site, day = policy.site[promise.site], policy.site[promise.site].contribution
    hours = f"{(day or 0) / HOUR:g} h"
    at = f", {_exceptions(promise.delta)}" if promise.delta else ""
    return (
        f"{promise.release} for {promise.reader}: everything that is published of one device's day, from "
        f"{site.day_starts} to {site.day_starts}, of which it counts for at most {hours}, costs epsilon "
        f"{promise.tight['device_day']:.3g} where that day is added or removed, "
        f"{promise.tight['device_day_moved']:.3g} where any part of it is changed{at}."
    )
