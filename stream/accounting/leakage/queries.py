"""The interface of leakage queries: plain numbers in, a plain answer out.

Each function has the name of its verb and takes the fields of one JSON model (lists and objects as parsed)
and the verb's options as keywords; it returns the fields of one JSON answer. ``tacet leakage`` and
``tacet optimise`` print exactly these. Attributes, tuples and states keep the order of the input; infinity is
a float here and the string "inf" in JSON. A malformed model raises ``UsageError``, which names the entry.

| query    | result                                                                         | mathematics in         |
|----------|--------------------------------------------------------------------------------|------------------------|
| osdp     | odds that a record is sensitive after these outcomes                           | dependence, guard      |
| prior    | leakage of a noisy sum to adversaries who know some of the tuples              | prior                  |
| gaussian | the same for Gaussian tuples                                                   | prior                  |
| temporal | leakage of a stream to an adversary who knows mobility; epsilons for it        | temporal               |
| compose  | joint cost of many noisy releases, in (epsilon, delta)                         | composition            |
| optimise | epsilons of attributes for a target of information                             | information, optimiser |

For ``compose`` a release is an object: ``noise`` ("laplace" with ``epsilon``, "gaussian" with ``sigma``, "pure" with
``epsilon``, "changes" with ``shift``) and ``times``, by default 1: the number of its values that the change alters,
each by one, or of the days where changes are paid for. Epsilons, sigmas and shifts (in standard deviations; ``policy
show --json`` prints ``shift``, mu of a day, and ``shift_moved``, that of a day replaced) are numbers or, for full
precision, decimal strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import numpy as np

from stream.accounting import composition
from stream.accounting.composition import EpsilonEvent, Gaussian, Laplace, Noise
from stream.accounting.gaussian_shift import CELLS, unit_shifts
from stream.accounting.leakage import optimiser
from stream.accounting.leakage.dependence import declared, factors, pairwise_factors, prior_odds
from stream.accounting.leakage.entries import (
    Floats,
    integer,
    integers,
    items,
    number,
    positive,
    posterior_odds,
    shown,
    stochastic,
    vector,
)
from stream.accounting.leakage.guard import worst_factors
from stream.accounting.leakage.prior import (
    Adversary,
    exact_leakages,
    fast_search,
    full_search,
    gaussian_leakages,
    tuples,
)
from stream.accounting.leakage.temporal import (
    Loss,
    backward_leakage,
    constant_allocation,
    forward_leakage,
    loss,
    quantified_allocation,
    reversed_in_time,
    supremum,
    total_leakage,
)
from stream.accounting.leakage.temporal import stationary as stationary_distribution
from stream.errors import UsageError
from stream.policy.fields import decimal_string
from stream.records import JsonObject

__all__ = ["Answer", "compose", "gaussian", "optimise", "osdp", "prior", "temporal"]

Answer = JsonObject
"""The fields of one JSON answer."""

# Composition.

MOST_RELEASES = 10_000
"""Largest length of a list of releases; equal releases are better written once, with ``times``."""

_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,40})?(e-?[0-9]{1,2})?")

_NOISES: dict[str, tuple[str, Callable[[Decimal, int], Noise]]] = {
    "laplace": ("epsilon", Laplace),
    "gaussian": ("sigma", lambda sigma, times: Gaussian(Fraction(sigma) ** 2, times)),
    "pure": ("epsilon", EpsilonEvent),
    "changes": ("shift", lambda shift, days: _days_of_changes(Fraction(shift), days)),
}
"""Noise -> the field with its amount, and the function that makes the noise from that and ``times``."""


def _days_of_changes(shift: Fraction, days: int) -> Noise:
    if days > composition.MOST_TIMES // CELLS:
        raise UsageError(f"times must be at most {composition.MOST_TIMES // CELLS} with noise changes, got {days}")
    return replace(unit_shifts(shift * shift), times=CELLS * days)


def compose(*, delta: object, releases: object, group: object = 1) -> Answer:
    """Return the joint cost of releases, pure and at ``delta``.

    Args:
        delta: 1e-10 to 0.01.
        releases: a list of objects as described in the module docstring.
        group: devices that change together, at the same values.

    Returns:
        ``epsilon`` with ``pure`` (a decimal string: the sum of epsilons; "inf" if there is Gaussian noise) and
        ``approximate`` (nats, at ``delta``, at most ``pure``), and that ``delta``.
    """
    entries = items(releases, "releases")
    if len(entries) > MOST_RELEASES:
        raise UsageError(f"releases must have at most {MOST_RELEASES} entries, got {len(entries)}")
    noises = [_noise(entry, f"releases[{i}]") for i, entry in enumerate(entries)]
    together = integer(group, "group", low=1, high=composition.MOST_GROUP)
    price = composition.compose(noises, _decimal(delta, "delta"), together)
    pure = decimal_string(Fraction(price.pure)) if price.pure.is_finite() else "inf"
    return {"epsilon": {"pure": pure, "approximate": price.approximate}, "delta": price.delta}


def _noise(entry: object, where: str) -> Noise:
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where} must be an object, got {shown(entry)}")
    kind = entry.get("noise")
    if not isinstance(kind, str) or kind not in _NOISES:
        raise UsageError(f"{where}.noise must be {', '.join(_NOISES)}, got {shown(kind)}")
    name, noise_of = _NOISES[kind]
    for key in entry:
        if key not in ("noise", name, "times"):
            raise UsageError(f"{where} must not hold {shown(key)}; known are noise, {name}, times")
    if name not in entry:
        raise UsageError(f"{where}.{name} must be given")
    size = _decimal(entry[name], f"{where}.{name}")
    times = integer(entry.get("times", 1), f"{where}.times", low=1, high=composition.MOST_TIMES)
    try:
        return noise_of(size, times)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _decimal(value: object, where: str) -> Decimal:
    """Return a number, or a decimal string with all its digits."""
    if not isinstance(value, str):
        return Decimal(repr(number(value, where, low=0.0)))
    if not _DECIMAL.fullmatch(value):
        raise UsageError(f'{where} must be a number or a decimal string such as "0.1", got {shown(value)}')
    return Decimal(value)


MAX_HORIZON = 1_100_000
"""Largest horizon: epsilons of a hundred years of hours, or of ten years of five-minute windows."""


def osdp(*, joint: object, epsilon: object, queries: object = None, released: object = None) -> Answer:
    """Return prior odds, factor, posterior odds and pairwise factor per attribute, and the worst factors.

    Args:
        joint: probability per pattern, a digit per attribute, 0 = sensitive.
        epsilon: per attribute, >= 0.
        queries: how often each was queried; by default once.
        released: how many of those were released; by default none.

    Returns:
        ``attributes`` (odds sensitive : not; ``pairwise_factor`` is the paper's approximation) and
        ``worst_factor`` over every outcome that these queries can have.
    """
    table = declared(joint)
    k = table.ndim
    e = vector(epsilon, "epsilon", k, low=0.0, finite=False)
    n = integers([1] * k if queries is None else queries, "queries", k)
    u = integers([0] * k if released is None else released, "released", k)
    exact, before = factors(table, e, n, u), prior_odds(table)
    pairwise = pairwise_factors(table, e, n, u)
    return {
        "attributes": [
            {
                "prior_odds": float(odds),
                "factor": float(factor),
                "posterior_odds": posterior_odds(float(odds), float(factor)),
                "pairwise_factor": float(product),
            }
            for odds, factor, product in zip(before, exact, pairwise, strict=True)
        ],
        "worst_factor": [float(f) for f in worst_factors(table, e, n)],
    }


def prior(
    *,
    domains: object,
    joint: object,
    scale: object,
    weights: object = None,
    method: Literal["exact", "full", "fast"] = "exact",
    keep: int | None = None,
) -> Answer:
    """Return the largest leakage and that of every adversary A(target, knows).

    Args:
        domains: per tuple its values.
        joint: nested by tuple.
        scale: of the Laplace noise.
        weights: of a linear query; by default a sum.
        method: ``exact`` from the definition; ``full`` and ``fast`` are the paper's Algorithms 1 and 2,
            heuristics that can fall below the exact value; their answer carries ``"heuristic": true``.
        keep: nodes kept per layer by ``fast``.
    """
    model = tuples(domains, joint, scale, weights)
    if (keep is not None) != (method == "fast"):
        raise UsageError("keep must be given with the method fast, and only with it")
    if method == "exact":
        return _adversaries(exact_leakages(model))
    if method == "full":
        return _adversaries(full_search(model)) | {"heuristic": True}
    if method == "fast":
        return _adversaries(fast_search(model, integer(keep, "keep", low=1))) | {"heuristic": True}
    raise UsageError(f"method must be exact, full or fast, got {method!r}")


def _adversaries(found: list[Adversary]) -> Answer:
    return {
        "leakage": max(a.leakage for a in found),
        "adversaries": [{"target": a.target, "knows": list(a.knows), "leakage": a.leakage} for a in found],
    }


def gaussian(*, covariance: object, range: object, scale: object, weights: object = None) -> Answer:  # noqa: A002  (the field's name)
    """Return the same as ``prior`` for Gaussian tuples whose values differ by at most ``range``."""
    return _adversaries(gaussian_leakages(covariance, range, scale, weights))


def temporal(
    *,
    epsilon: object = None,
    backward: object = None,
    forward: object = None,
    stationary: object = False,
    target: object = None,
    horizon: object = None,
    method: Literal["bound", "quantified"] | None = None,
) -> Answer:
    """Return the temporal leakage of a stream or, with ``target`` and ``horizon``, epsilons that keep to it.

    Args:
        epsilon: per release in order of time, >= 0, at least one. With a target it may be missing; if given it
            must be valid, and is otherwise ignored.
        backward: transition matrix to the state before, or None.
        forward: transition matrix to the state after, or None.
        stationary: take the backward matrix of the stationary Markov chain with this forward matrix.
        target: largest total leakage, positive.
        horizon: number of releases.
        method: ``bound`` (the default): one constant epsilon that is valid for a stream of any length;
            ``quantified``: leakage exactly ``target`` at every time of a stream that ends at ``horizon``.

    Returns:
        ``backward``, ``forward``, ``total``: lists in order of time; ``supremum`` of each at the largest
        epsilon. Without one of the matrices its leakage and supremum are None, and the total is that of an
        adversary who does not know that direction. With a target: ``epsilon``, one per release.
    """
    if (target is None) != (horizon is None) or (method is not None and target is None):
        raise UsageError("target and horizon must be given together, and method only with them")
    before, after = _directions(backward, forward, stationary)
    e = None if epsilon is None and target is not None else _epsilons(epsilon)
    if target is not None:
        return {"epsilon": _allocation(before or loss(None), after or loss(None), target, horizon, method or "bound")}
    return _temporal_leakage(before, after, e or [])


def _epsilons(epsilon: object) -> list[float]:
    found = [float(x) for x in vector(epsilon, "epsilon", low=0.0)]
    if not found:
        raise UsageError("epsilon must not be empty")
    return found


def _temporal_leakage(before: Loss | None, after: Loss | None, e: list[float]) -> Answer:
    largest = max(e)
    sides = [None if side is None else supremum(side, largest) for side in (before, after)]
    known, back = before or loss(None), after or loss(None)
    total = supremum(known, largest) + supremum(back, largest) - largest
    return {
        "backward": None if before is None else backward_leakage(before, e),
        "forward": None if after is None else forward_leakage(after, e),
        "total": total_leakage(known, back, e),
        "supremum": {"backward": sides[0], "forward": sides[1], "total": total},
    }


def _directions(backward: object, forward: object, stationary: object) -> tuple[Loss | None, Loss | None]:
    if backward is None and forward is None:
        raise UsageError("backward or forward must be given")
    if not isinstance(stationary, bool):
        raise UsageError(f"stationary must be true or false, got {shown(stationary)}")
    after = None if forward is None else stochastic(forward, "forward")
    if stationary:
        if after is None or backward is not None:
            raise UsageError("stationary needs forward and no backward: it derives the one from the other")
        before: Floats | None = reversed_in_time(after, stationary_distribution(after))
    else:
        before = None if backward is None else stochastic(backward, "backward")
    if before is not None and after is not None and len(before) != len(after):
        raise UsageError(f"forward must have {len(before)} states like backward, got {len(after)}")
    return None if before is None else loss(before), None if after is None else loss(after)


def _allocation(before: Loss, after: Loss, target: object, horizon: object, method: str) -> list[float]:
    alpha, releases = positive(target, "target"), integer(horizon, "horizon", low=1, high=MAX_HORIZON)
    if method not in ("bound", "quantified"):
        raise UsageError(f"method must be bound or quantified, got {method!r}")
    allocate = constant_allocation if method == "bound" else quantified_allocation
    return allocate(before, after, alpha, releases)


def optimise(
    *,
    joint: object,
    budget: object,
    queries: object = None,
    weights: object = None,
    objective: optimiser.Objective = "releases",
    cap: object = None,
) -> Answer:
    """Return the epsilons that give most within ``budget`` nats of information, with their certificate.

    Args:
        joint: probability per pattern, a digit per attribute, 0 = sensitive.
        budget: T in nats.
        queries: how often each attribute is queried; by default once.
        weights: value of each attribute; by default 1.
        objective: ``releases`` (expected released records) or ``epsilon`` (their sum, as in the paper).
        cap: largest epsilon; by default none.

    Returns:
        What the objective ``maximises``: ``epsilon``, ``leakage`` (nats) and ``expected_releases_each`` of every
        attribute, the totals ``leakage_total`` and ``expected_releases`` (records, whatever the weights), the
        weighted ``objective`` and its ``upper_bound``. ``other`` is the same for the other objective.
    """
    table = declared(joint)
    k = table.ndim
    n = integers([1] * k if queries is None else queries, "queries", k, low=1)
    w = np.ones(k) if weights is None else vector(weights, "weights", k, low=0.0)
    total, most = positive(budget, "budget"), positive("inf" if cap is None else cap, "cap", finite=False)
    if objective not in OTHER:
        raise UsageError(f'objective must be "releases" or "epsilon", got {shown(objective)}')
    chosen, other = (
        _choice(optimiser.optimise(table, n, w, budget=total, objective=name, cap=most), name)
        for name in (objective, OTHER[objective])
    )
    return chosen | {"other": other}


OTHER: dict[optimiser.Objective, optimiser.Objective] = {"releases": "epsilon", "epsilon": "releases"}
"""The other objective of each objective."""


def _choice(best: optimiser.Optimum, objective: optimiser.Objective) -> Answer:
    return {
        "epsilon": [float(e) for e in best.epsilon],
        "objective": best.objective,
        "upper_bound": best.upper_bound,
        "leakage": [float(i) for i in best.leakage],
        "leakage_total": best.leakage_total,
        "expected_releases": best.expected_releases,
        "expected_releases_each": [float(r) for r in best.releases],
        "maximises": objective,
    }
