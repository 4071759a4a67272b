"""The releases of a policy: what is given to whom, through which mechanism, at which epsilon."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stream.policy.attribute_release import AttributeRelease
from stream.policy.count_release import CountRelease

Release = Annotated[CountRelease | AttributeRelease, Field(discriminator="query")]


def audiences_of(release: CountRelease | AttributeRelease) -> tuple[str, ...]:
    """Return the audiences of a release, sorted."""
    return release.audiences if isinstance(release, AttributeRelease) else tuple(sorted(release.epsilon))
