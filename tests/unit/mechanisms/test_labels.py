from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from stream.domains import Draw
from stream.errors import UsageError
from stream.mechanisms.noise_labels import Context, counts_digest, label

CONTEXT = Context("dbh", "occupancy", 300_000_000, 1, ("2011", "2065"))
DIGEST = counts_digest(np.array([3, 5]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("a", "b"), ("ab",)),
        (("1",), (1,)),
        ((1,), (Fraction(1),)),
        (("a",), (b"a",)),
        ((), ("",)),
        ((Fraction(1, 12),), (Fraction(11, 2),)),
        ((-1,), (1,)),
    ],
)
def test_labels_of_different_fields_differ(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert label(*one) != label(*other)


def test_label_counts_its_bytes_not_its_characters() -> None:
    assert label("é") == b"s" + (2).to_bytes(8, "big") + b"\xc3\xa9"


@pytest.mark.parametrize("field", [1.0, True, None])
def test_label_refuses_a_field_whose_bytes_could_be_ambiguous(field: object) -> None:
    with pytest.raises(UsageError, match="label field 1 must be"):
        label("ok", field)  # type: ignore[arg-type]


def test_context_label_changes_with_everything_that_may_tell_two_draws_apart() -> None:
    half, whole = Fraction(1, 2), Fraction(1)
    labels = [
        CONTEXT.label(Draw.CHAIN, half, digest=DIGEST),
        CONTEXT.label(Draw.CHAIN, whole, digest=DIGEST),
        CONTEXT.label(Draw.CHAIN, whole, half, digest=DIGEST),
        CONTEXT.label(Draw.CHAIN, half, whole, digest=DIGEST),
        CONTEXT.label(Draw.GROUPER_TEST, half, digest=DIGEST),
        CONTEXT.label(Draw.CHAIN, half, digest=counts_digest(np.array([3, 6]))),
        replace(CONTEXT, site="icf").label(Draw.CHAIN, half, digest=DIGEST),
        replace(CONTEXT, release="hourly").label(Draw.CHAIN, half, digest=DIGEST),
        replace(CONTEXT, window=600_000_000).label(Draw.CHAIN, half, digest=DIGEST),
        replace(CONTEXT, attempt=2).label(Draw.CHAIN, half, digest=DIGEST),
        replace(CONTEXT, zones=("2065", "2011")).label(Draw.CHAIN, half, digest=DIGEST),
        replace(CONTEXT, zones=("20112065",)).label(Draw.CHAIN, half, digest=DIGEST),
    ]
    assert len(set(labels)) == len(labels)


def test_digest_does_not_depend_on_the_integer_type_of_a_vector_but_on_its_split() -> None:
    assert counts_digest(np.array([3, 5], dtype=np.int32)) == counts_digest(np.array([3, 5], dtype=">i8"))
    assert counts_digest(np.array([3]), np.array([5])) != counts_digest(np.array([3, 5]))
