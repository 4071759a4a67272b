"""What an adversary with knowledge of people learns from the counts, beside the plain epsilons.

| figure    | adversary                                                                    | source             |
|-----------|------------------------------------------------------------------------------|--------------------|
| temporal  | knows how a person moves from tick to tick (the policy's mobility model)      | Cao et al. 2017    |
| meeting   | knows that a group of people comes and goes together (the largest declared)  | Li et al. 2019     |
| w-event   | looks at one device over any w consecutive windows                           | Kellaris et al. 2014 |

All come from declared models, so they may stream. Temporal leakage is that of a mobility model whose step is
the tick; a site with another tick needs another model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stream.accounting.leakage.mobility import reversed_in_time, stationary
from stream.accounting.leakage.prior import group_leakage
from stream.accounting.leakage.temporal import Loss, loss, total_supremum
from stream.policy.document import Meeting, Mobility, Privacy


@dataclass(frozen=True)
class Knowledge:
    """The declared models of a policy."""

    mobility: Mobility | None
    meetings: tuple[Meeting, ...]

    @classmethod
    def of(cls, privacy: Privacy) -> Knowledge:
        """Return the models that a policy declares.

        Raises:
            UsageError: the mobility model has no single stationary distribution, or a state that is never
                reached: then it has no time before it.
        """
        if privacy.mobility is not None:
            _losses(privacy.mobility)
        return cls(privacy.mobility, privacy.meetings)

    def temporal(self, epsilon: float) -> float | None:
        """Return the supremum of temporal leakage of one presence tuple at a constant epsilon; inf if unbounded.

        None where the policy declares no mobility model.
        """
        if self.mobility is None:
            return None
        if epsilon == 0:
            return 0.0
        backward, forward = _losses(self.mobility)
        return total_supremum(backward, forward, epsilon)

    def meeting(self, epsilon: float) -> float | None:
        """Return the leakage about one member of the meeting that leaks most, at one tick; None without any."""
        if not self.meetings:
            return None
        if epsilon == 0:
            return 0.0
        return max(group_leakage(m.size, m.correlation, m.presence, epsilon) for m in self.meetings)


@lru_cache(maxsize=8)
def _losses(mobility: Mobility) -> tuple[Loss, Loss]:
    """Return the losses backward and forward in time of the stationary Markov chain."""
    forward = np.array(mobility.forward)
    return loss(reversed_in_time(forward, stationary(forward))), loss(forward)
