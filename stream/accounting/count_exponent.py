"""The exponent E: what the charged counts of a zone's day reveal of an attribute.

A sensitive and another value of a zone's day differ in the counts of at most n ticks of that day
(``privacy.ticks_per_attribute``), each by one person's k devices. Counts therefore change the odds of an attribute by a
factor of at most e^(k E). E is the sum of all charges, under any release name, policy and attempt, and with any delay:

    E = sum of the n largest window costs of the zone within the day
        + sum over w-event releases of epsilons_for(w, n, windows charged) times epsilon
        + sum over day releases and the privacy days within the day of the loss of a changed part of a day

The cost of a window is the sum over lines (``ChargeLine``). Readers of one line pay together ``coalition_cost``. Any
n windows of a day cost at most the n largest. In a w-event release one epsilon pays for any w consecutive windows, but
the n ticks may lie apart, each at a window in which the release spends its whole epsilon (``Mechanism.epsilons_for``).
A day with fewer charged windows costs less than a policy promises, and never more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from stream.accounting.charge_history import ChargeHistory, ChargeLine, Span
from stream.accounting.costs import coalition_cost
from stream.policy.mechanisms import mechanism_named


def count_exponent(
    history: ChargeHistory, zone: str, span: Span, ticks: int, audiences: frozenset[str] | None = None
) -> Fraction:
    """Return E of a zone's windows that end within a span, for some audiences together.

    Args:
        history: the charges of the site's windows.
        zone: the zone.
        span: the local day.
        ticks: n.
        audiences: the readers; None for every audience that has paid.
    """
    covering = history.covering(zone)
    windows: Counter[Fraction] = Counter()
    """Cost of a window, of the lines that pay for each window -> number of windows."""
    others: dict[str, Counter[Fraction]] = {}
    """Line that pays for several windows at once -> its cost -> number of windows."""
    for window, times in history.windows_in(span).items() if covering else ():
        cost = Fraction(0)
        for name, paid in window:
            if name in covering:
                line = history.lines[name]
                seen = [epsilon for audience, epsilon in paid if audiences is None or audience in audiences]
                if line.w == 1 and line.day is None:
                    cost += coalition_cost(line.mechanism, seen)
                else:
                    others.setdefault(name, Counter())[coalition_cost(line.mechanism, seen)] += times
        windows[cost] += times
    return _dearest(windows, ticks) + sum(
        (_line_cost(history.lines[name], costs, ticks) for name, costs in others.items()), Fraction(0)
    )


def _line_cost(line: ChargeLine, costs: Mapping[Fraction, int], ticks: int) -> Fraction:
    """Return the largest cost of ``ticks`` windows of a line that pays for several windows at once."""
    dearest = max(costs)
    if line.day is not None:
        return dearest
    return mechanism_named(line.mechanism).epsilons_for(line.w, ticks, sum(costs.values())) * dearest


def _dearest(costs: Mapping[Fraction, int], n: int) -> Fraction:
    """Return the sum of the n largest costs; ``costs`` maps a cost to its number."""
    total = Fraction(0)
    for cost, number in sorted(costs.items(), reverse=True):
        used = min(n, number)
        total += used * cost
        n -= used
    return total
