from fractions import Fraction

import pytest

from stream.errors import UsageError
from stream.mechanisms.osdprr import released

F = Fraction
RECORD = {"site": "dbh", "zone": "2065", "attribute": "arrival", "day": "2024-03-04"}
KEYS = [i.to_bytes(32, "big") for i in range(400)]


def test_a_record_shown_at_an_epsilon_is_shown_at_every_larger_one() -> None:
    for key in KEYS:
        shown = [released(key, **RECORD, epsilon=F(e, 10)) for e in (1, 2, 5, 10, 30, 100)]
        assert shown == sorted(shown)


def test_asking_again_gives_the_same_answer() -> None:
    assert [released(key, **RECORD, epsilon=F(1)) for key in KEYS] == [
        released(key, **RECORD, epsilon=F(1)) for key in KEYS
    ]


@pytest.mark.parametrize("field", list(RECORD))
def test_each_field_of_a_record_has_its_own_coin(field: str) -> None:
    other = RECORD | {field: "2024-03-05"}
    answers = [(released(key, **RECORD, epsilon=F(7, 10)), released(key, **other, epsilon=F(7, 10))) for key in KEYS]
    assert len(set(answers)) == 4


def test_an_epsilon_that_is_not_exact_is_refused() -> None:
    with pytest.raises(UsageError, match="exact Fraction"):
        released(KEYS[0], **RECORD, epsilon=0.5)  # type: ignore[arg-type]
