"""The releases of a policy: what is given to whom, through which mechanism, at which epsilon."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stream.policy.attribute_release import AttributeRelease
from stream.policy.count_release import CountRelease
from stream.policy.threshold_release import ThresholdRelease

Release = Annotated[CountRelease | AttributeRelease | ThresholdRelease, Field(discriminator="query")]


def audiences_of(release: CountRelease | AttributeRelease | ThresholdRelease) -> tuple[str, ...]:
    """Return the audiences of a release, sorted."""
    return tuple(sorted(release.epsilon)) if isinstance(release, CountRelease) else release.audiences
