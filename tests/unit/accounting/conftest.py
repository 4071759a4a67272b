"""Seeded generators for random models."""

from collections.abc import Callable

import pytest
from numpy.random import Generator, default_rng


@pytest.fixture
def seeded() -> Callable[[int], Generator]:
    """Return a generator for a seed, so that every random model can be made again."""
    return default_rng
