"""Which releases a policy only calls by another name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stream.policy.document import Policy
from stream.policy.releases import Release


def renamed(old: Policy, new: Policy) -> dict[str, str]:
    """Return former name -> new name of each release that is another one by its name alone.

    What stands on counts of another release (``counts``) is known again where those only have another name, too.
    """
    names: dict[str, str] = {}
    former, present = ({release.name for release in policy.release} for policy in (old, new))
    come = [release for release in new.release if release.name not in former]
    gone = [release for release in old.release if release.name not in present]
    for release in sorted(gone, key=lambda each: getattr(each, "counts", None) is not None):
        told = _told(release, names)
        same = next((each for each in come if _told(each) == told), None)
        if same is not None:
            names[release.name] = same.name
            come.remove(same)
    return names


def _told(release: Release, names: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return all that a release says but for its name."""
    told = release.model_dump(exclude={"name"})
    counts = told.get("counts")
    return told if counts is None else told | {"counts": names.get(counts, counts)}
