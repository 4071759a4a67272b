"""The choice of the site of a recording, by the option ``--site``."""

from __future__ import annotations

from stream.errors import UsageError
from stream.release.validation import Policy


def observed_site(policy: Policy, name: str | None) -> str:
    """Return the named site, or the policy's only one; its devices are observed.

    Raises:
        UsageError: the policy has no such site, or several and none is named; or the site has people counters, which
            observe no devices.
    """
    names = ", ".join(policy.site)
    if name is None and len(policy.site) != 1:
        raise UsageError(f"--site: must name one of the policy's sites ({names})")
    site = next(iter(policy.site)) if name is None else name
    if site not in policy.site:
        raise UsageError(f"--site: must be one of the policy's sites ({names}), got {site!r}")
    if policy.site[site].feed == "counts":
        raise UsageError(f"--site: must be a site whose devices are observed (feed = 'devices'), got {site!r}")
    return site
