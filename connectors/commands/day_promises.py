"""What 'tacet policy show' prints of releases that are paid by the day."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

from rich.table import Table

from connectors.commands.tables import table
from connectors.reports.promised import signed_sentence
from stream.policy.document import EVERYBODY, Policy
from stream.release.count_promises import CountPromise, count_promises


def days_paid(policy: Policy) -> Iterator[Table | str]:
    """Yield what is paid by the day: how much noise that leaves, and what to sign."""
    by_day = [promise for promise in count_promises(policy) if promise.terms is not None]
    columns = ("sigma, or\nepsilon", "one device,\nits day", "any part of\nit changed", "one person,\none day")
    for site, promises in groupby(by_day, lambda p: p.site):
        made = table(f"Site {site}: epsilons of whole days", ("release", "reader"), columns)
        held = list(promises)
        for p in held:
            tight = (p.tight[unit] for unit in ("device_day", "device_day_moved", "person_day"))
            made.add_row(f"{p.release}, {p.mechanism}", p.reader, _noise(p), *(f"{epsilon:.3g}" for epsilon in tight))
        yield made
        yield from (signed_sentence(policy, p) + "\n" for p in held if p.reader != EVERYBODY)
    if any(p.delta for p in by_day) and policy.privacy.factor_delta is not None:
        yield (
            f"max_factor holds beside gaussian counts except with probability {float(policy.privacy.factor_delta):.2g} "
            "for each paid day of each release (factor_delta).\n"
        )


def signed(policy: Policy) -> Iterator[str]:
    """Yield, for each release that is paid by the day and each of its audiences, what a privacy officer can sign."""
    for promise in count_promises(policy):
        if promise.terms is not None and promise.reader != EVERYBODY:
            yield signed_sentence(policy, promise) + "\n"


def _noise(promise: CountPromise) -> str:
    """Return the scale of the noise of each level, leaves first."""
    assert promise.terms is not None  # noqa: S101
    gaussian = promise.terms.noise == "gaussian"
    scales = (math.sqrt(each) if gaussian else float(each) for each in promise.terms.parameters)
    return ", ".join(f"{scale:.4g}" for scale in scales)
