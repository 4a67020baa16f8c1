"""Arrays of a pickle, compressed if they shrink (whole numbers, triangles); loading undoes it."""

from __future__ import annotations

import zlib
from dataclasses import is_dataclass
from typing import Any

import numpy as np

_LEAST, _SAMPLE, _GAIN = 2**10, 2**16, 0.95  # fewest bytes, bytes tried, largest packed share


class Packed:
    """An array, or a dataclass with arrays, that pickle writes compressed."""

    def __init__(self, value: Any, known: dict[int, Packed]) -> None:
        self.value, self.known = value, known

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make the value again."""
        if not isinstance(self.value, np.ndarray):
            return rebuilt, (type(self.value), packed(vars(self.value), self.known))
        by_columns = not self.value.flags.c_contiguous and self.value.flags.f_contiguous
        array = np.ascontiguousarray(self.value.T if by_columns else self.value)
        return unpacked, (zlib.compress(array.data), array.dtype.str, array.shape, by_columns)


def unpacked(
    data: bytes, dtype: str, shape: tuple[int, ...], by_columns: bool = False
) -> np.ndarray:
    """Return the array, in memory of its own."""
    array = np.frombuffer(zlib.decompress(data), dtype).reshape(shape).copy()
    return array.T if by_columns else array


def rebuilt(kind: type, state: dict[str, Any]) -> Any:
    """Return an object of this class with these attributes."""
    value: Any = object.__new__(kind)
    value.__dict__.update(state)
    return value


def packed(state: dict[str, Any], known: dict[int, Packed] | None = None) -> dict[str, Any]:
    """Return attributes with packed arrays. Dataclasses are packed inside.

    An array that the object and a dataclass in it share is written once, by joblib, too. ``known``
    are the arrays that the object has packed, by their ids.
    """
    known, found = {} if known is None else known, dict(state)
    inside = {name: value for name, value in state.items() if _has_fields(value)}
    shared = {id(part) for value in inside.values() for part in vars(value).values()}
    for name, value in state.items():
        again = type(value) is np.ndarray and id(value) in shared | known.keys()
        if name in inside or again or _shrinks(value):
            found[name] = known.setdefault(id(value), Packed(value, known))
    return found


def _has_fields(value: Any) -> bool:
    """Whether a value is a dataclass that pickle would write as its attributes."""
    getstate: Any = type(value).__getstate__
    plain = getstate is object.__getstate__ and hasattr(value, "__dict__")
    return plain and is_dataclass(value) and not isinstance(value, type)


def _shrinks(value: Any) -> bool:
    if type(value) is not np.ndarray or value.dtype.kind not in "biuf" or value.nbytes < _LEAST:
        return False
    sample = value.ravel()[: _SAMPLE // value.itemsize].tobytes()
    return len(zlib.compress(sample)) < _GAIN * len(sample)
