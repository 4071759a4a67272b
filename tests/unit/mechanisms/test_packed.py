"""Arrays that are mostly zeros keep their values in fewer bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from stream.errors import DataError
from stream.mechanisms.filter.state import Array, pack, unpack

ANY = arrays(np.float32, array_shapes(max_dims=4, max_side=6), elements=st.sampled_from([0.0, 1.0, 0.3, 1e-20, 2e30]))


@given(ANY)
def test_an_array_comes_back_as_it_was_in_whatever_order_memory_held_it(values: Array) -> None:
    for held in (values, np.asfortranarray(values), values[::-1][::-1]):
        data = b"before" + pack(held) + b"after"
        found, end = unpack(data, 6, values.shape)
        assert found.dtype == np.float32
        assert found.tolist() == values.tolist()
        assert data[end:] == b"after"


def test_the_form_is_bits_then_bytes_by_rank() -> None:
    values = np.array([0, 1, 0, 0, 0, 0, 0, 0, 0, 0.5], np.float32)
    assert pack(values) == bytes([0b01000000, 0b01000000]) + bytes([0, 0, 0, 0, 0x80, 0x00, 0x3F, 0x3F])


@given(ANY)
def test_bytes_that_end_too_early_are_refused(values: Array) -> None:
    data = pack(values)
    for length in range(len(data)):
        with pytest.raises(DataError, match="packed array"):
            unpack(data[:length], 0, values.shape)
