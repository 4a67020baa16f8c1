"""Arrays of a pickle, compressed where they shrink (whole numbers); loaded they are plain."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

_LEAST, _SAMPLE, _GAIN = 2**10, 2**16, 0.95  # bytes of an array, bytes tried, share that may stay


class Packed:
    """An array that pickle writes compressed."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = np.ascontiguousarray(array)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make the array again."""
        return unpacked, (zlib.compress(self.array.data), self.array.dtype.str, self.array.shape)


def unpacked(data: bytes, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array, in memory of its own."""
    return np.frombuffer(zlib.decompress(data), dtype).reshape(shape).copy()


def packed(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of an object, with arrays packed that become smaller by a sample."""
    return {name: Packed(v) if _shrinks(v) else v for name, v in state.items()}


def _shrinks(value: Any) -> bool:
    if type(value) is not np.ndarray or value.dtype.kind not in "biuf" or value.nbytes < _LEAST:
        return False
    sample = value.ravel()[: _SAMPLE // value.itemsize].tobytes()
    return len(zlib.compress(sample)) < _GAIN * len(sample)
