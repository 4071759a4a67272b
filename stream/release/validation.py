"""Validation of a policy: the only place that makes the ``Policy`` that a pipeline accepts.

``policy.document.parse`` checks the rules of the document itself. This module makes the checks that need mechanisms or
accounting, such as the cost of releases and the information that they reveal together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, final

from stream.policy.document import PolicyDocument, Release, parse
from stream.policy.fields import ReadText, read_no_file
from stream.release.attribute_guarantees import check_attribute_guarantees, check_attribute_logic
from stream.release.count_guarantees import check_knowledge
from stream.release.prices import check_noise, check_runs
from stream.release.queries import check_heat_maps
from stream.release.revisions import check_revisions

CHECKS: tuple[Callable[[PolicyDocument, str], None], ...] = (
    check_noise,
    check_runs,
    check_attribute_guarantees,
    check_attribute_logic,
    check_knowledge,
    check_revisions,
    check_heat_maps,
)
"""Each raises PolicyError if a guarantee does not hold; its message begins with the file's name."""


@final
class Policy(PolicyDocument):
    """A policy whose guarantees hold. Only :func:`validate` makes one, and every copy is validated."""

    def __init__(self, **_: Any) -> None:  # pydantic's validation calls it too
        msg = "a Policy is made by stream.release.validation.validate"
        raise TypeError(msg)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with these fields instead, validated.

        Raises:
            ValueError: a rule of the document is broken.
            PolicyError: a guarantee does not hold.
        """
        values = dict(PolicyDocument.model_construct(**dict(self)).model_copy(deep=deep)) | dict(update or {})
        return validate(PolicyDocument.model_validate(values))

    def with_releases(self, releases: Iterable[Release]) -> Policy:
        """Return the policy with other releases, validated."""
        return self.model_copy(update={"release": tuple(releases)})


def validate(document: PolicyDocument, file: str = "policy") -> Policy:
    """Check the guarantees of a policy document; PolicyError names the file, the rule and the value."""
    for check in CHECKS:
        check(document, file)
    return Policy.model_construct(**dict(document))


def load_policy(text: str, file: str = "policy", read: ReadText = read_no_file) -> Policy:
    """Parse and validate a policy; PolicyError names the file, the line or key, the rule and the value.

    ``read`` returns the text of a file that the policy names; without it the policy may name no file.
    """
    return validate(parse(text, file, read), file)
