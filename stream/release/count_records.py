"""The records of a count release: of a window, of its denial, and of revised values.

**Noisy values** are free. A filter's values are a function of its audience's noisy values, past and present, and of
nothing else; the price pays for their noise. The proof of PeGaSus covers noisy counts and groups as two outputs, with
0.8 and 0.2 of epsilon. An audience receives the noisy values of its own epsilon, which a coalition has from the noise
chain anyway. Those of floors and building are sums, or have separate noise that was paid for. Noisy values are as
independent from window to window as their noise, while ``values`` lose that independence by smoothing.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypedDict

from stream.mechanisms.base import Values, noisy_of
from stream.policy.fields import decimal_string
from stream.records import NoiseKind
from stream.release.count_plan import CountPlan
from stream.release.ledger_writer import RecordHeader
from stream.schemas import CountRecord, Levels, LevelScales

# Fields that only some records have; a field that is not given is absent from the record's bytes.


class DayFields(TypedDict, total=False):
    """Those of records of a release that is paid by the day."""

    unit: str
    noise: NoiseKind
    delta: str
    counted: str
    bounded_to: str


class LevelFields(TypedDict, total=False):
    """Those of records with floors or the building; null for a denial."""

    levels: Levels | None
    levels_half_width_95: Levels | None
    levels_noise_scale: LevelScales


class NoisyFields(TypedDict, total=False):
    """Those of records with noisy values; null for a denial."""

    noisy: dict[str, int] | None
    levels_noisy: Levels | None
    levels_draws: Levels


def count_record(
    plan: CountPlan, header: RecordHeader, audience: str, values: Values | None, *, reason: str | None = None,
    spend: Fraction = Fraction(0), noisy: bool = True,
) -> CountRecord:  # fmt: skip
    """Return the record of a release, or of a denial in the same shape: without values, and with its reason.

    Args:
        plan: of the count release.
        header: of the window.
        audience: the audience.
        values: the released values; None for a denial.
        reason: the reason for a denial.
        spend: the amount that the audience is charged.
        noisy: whether the record contains the noisy values behind its values, where the release publishes them.
    """
    release, n, epsilon = plan.release, len(plan.names), plan.release.epsilon[audience]
    return CountRecord(
        **header.fields(release.name, audience),
        values=None if values is None else plan.by_name([int(v) for v in values.values[:n]]),
        released=values is not None,
        reason=reason,
        mechanism=release.mechanism,
        epsilon=decimal_string(epsilon),
        spend=decimal_string(spend),
        noise_scale=plan.by_name(plan.scales(epsilon, values)),
        half_width_95=None if values is None else plan.by_name([float(w) for w in values.half_width[:n]]),
        half_width_kind=plan.mechanisms[epsilon].half_width_kind,
        **day_fields(plan, audience),
        **_level_fields(plan, epsilon, values),
        **(_noisy_fields(plan, values) if noisy and plan.publishes_noisy else {}),
    )


def day_fields(plan: CountPlan, audience: str) -> DayFields:
    """Return the fields that only records of a release have that is paid by the day."""
    if plan.day_prices is None:
        return {}
    price = plan.day_prices.prices[audience]
    fields: DayFields = {"unit": "device_day", "noise": price.noise, "delta": decimal_string(price.delta)}
    if plan.counted:
        fields["counted"] = plan.counted
    if plan.bounded_to is not None:
        fields["bounded_to"] = plan.bounded_to
    return fields


def _level_fields(plan: CountPlan, epsilon: Fraction, values: Values | None) -> LevelFields:
    """Return the fields of floors and building, with the scales of their own noise."""
    if plan.release.levels == ("zone",):
        return {}
    levels, half_widths = (None, None) if values is None else plan.level_values(plan.mechanisms[epsilon], values)
    fields: LevelFields = {"levels": levels, "levels_half_width_95": half_widths}
    if scales := plan.level_scales[epsilon]:
        fields["levels_noise_scale"] = scales
    return fields


def _noisy_fields(plan: CountPlan, values: Values | None) -> NoisyFields:
    """Return the fields of noisy values."""
    noisy = None if values is None else noisy_of(values)
    fields: NoisyFields = {"noisy": None if noisy is None else plan.by_name(noisy[: len(plan.names)].tolist())}
    if plan.release.levels != ("zone",):
        fields["levels_noisy"] = None if noisy is None else plan.noisy_level_values(noisy)
        if plan.level_draws:
            fields["levels_draws"] = plan.level_draws
    return fields
