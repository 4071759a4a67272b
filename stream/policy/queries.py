"""Questions that are answered from what a count release gives anyway."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stream.policy.fields import Frozen, Name

LARGEST_COUNT = 1_000_000_000
"""No threshold is larger."""
LONGEST_W = 2016
"""Most windows in a row that one epsilon or one sliding budget may pay for: a week of 5 min."""
MOST_KNOWN = 336
"""Most windows of a half hour of the week that a heat map may wait for; twice as many are known before they fade."""


class Query(Frozen):
    """A question answered from what a count release gives anyway: it costs nothing more."""

    name: Name
    """Of its own private topic."""
    kind: Literal["window-sum", "jump", "low", "heatmap"]
    windows: int = Field(ge=1, le=LONGEST_W, strict=True)
    """How many windows it looks at, the present one included; of a heat map how many earlier ones of a half hour of the
    week must be known before it has colours."""
    threshold: Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)] | None = None
    """Size at which a change is a jump or drop, or up to which a sum is low."""

    @model_validator(mode="after")
    def _threshold_fits(self) -> Query:
        if (self.threshold is None) != (self.kind in {"window-sum", "heatmap"}):
            msg = "threshold must be given with jump and low, and only with them"
            raise ValueError(msg)
        if self.kind == "jump" and (self.windows < 2 or self.threshold == 0):
            msg = "jump must look at 2 windows or more, with a threshold of at least 1"
            raise ValueError(msg)
        if self.kind == "heatmap" and not 2 <= self.windows <= MOST_KNOWN:
            msg = f"heatmap must have 2 to {MOST_KNOWN} windows, got {self.windows}"
            raise ValueError(msg)
        return self
