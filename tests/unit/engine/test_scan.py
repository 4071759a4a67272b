"""One operator over items: states are handed on, outputs stay in order."""

from __future__ import annotations

from stream.operators import scan


class RunningSum:
    """Gives each sum twice."""

    def initial(self) -> int:
        return 10

    def step(self, state: int, item: int) -> tuple[int, list[int]]:
        return state + item, [state + item] * 2

    def encode(self, state: int) -> bytes:
        return bytes([state])

    def decode(self, data: bytes) -> int:
        return data[0]


def test_each_step_gets_the_state_of_the_one_before_and_all_outputs_are_kept() -> None:
    assert scan(RunningSum(), [1, 2]) == (13, [11, 11, 13, 13])
    assert scan(RunningSum(), [1], state=0) == (1, [1, 1])
    assert scan(RunningSum(), []) == (10, [])
