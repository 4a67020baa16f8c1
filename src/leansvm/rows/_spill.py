"""The state of blocks whose rows are read again in every pass: in memory, then on disk."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_SMALL = 4096  # bytes of an array that is not worth a file


class _OnDisk(NamedTuple):
    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: str

    def open(self) -> Any:
        # a plain array over the map: the pages are the system's to write out and to drop
        return np.asarray(np.memmap(self.path, self.dtype, "r+", 0, self.shape, self.order))  # type: ignore[call-overload]


class StateStore:
    """Dictionaries of arrays by key; those that do not fit ``budget`` bytes lie in files.

    Arrays in files are handed out as memory maps: changing them in place changes the file. The
    files go with the store.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.in_memory = 0
        self.on_disk = 0
        self._states: dict[int, dict[tuple[type, str], Any]] = {}
        self._bytes: dict[int, int] = {}
        self._files = 0
        self._lock = threading.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def reserve(self, n_bytes: int) -> bool:
        """Set bytes of the budget aside for something else; False if there is no room."""
        with self._lock:
            fits = self.in_memory + n_bytes <= self.budget
            self.budget -= n_bytes * fits
        return fits

    def load(self, key: int) -> dict[type, Any]:
        """Return the state of a block."""
        found: dict[type, dict[str, Any]] = {}
        for (kind, name), value in self._states.get(key, {}).items():
            array = value.open() if isinstance(value, _OnDisk) else value
            found.setdefault(kind, {})[name] = array
        return {kind: kind(**values) for kind, values in found.items()}

    def store(self, key: int, state: dict[type, Any]) -> None:
        """Keep the state of a block."""
        kept: dict[tuple[type, str], Any] = {}
        for kind, value in state.items():
            kept |= {(kind, item.name): getattr(value, item.name) for item in fields(value)}
        for name, old in self._states.get(key, {}).items():
            if not isinstance(old, _OnDisk):
                continue
            if name in kept and _maps(kept[name], old):
                kept[name] = old
                continue
            old.path.unlink(missing_ok=True)
            with self._lock:
                self.on_disk -= int(np.prod(old.shape)) * old.dtype.itemsize
            if name in kept:
                kept[name] = self._to_disk(key, name, kept[name])
        needed = sum(_size(value) for value in kept.values())
        with self._lock:
            total = self.in_memory - self._bytes.get(key, 0)
            fits = total + needed <= self.budget
            self._bytes[key] = needed if fits else 0
            self.in_memory = total + self._bytes[key]
        if not fits:
            for name, value in kept.items():
                if _size(value) > _SMALL:
                    kept[name] = self._to_disk(key, name, value)
        self._states[key] = kept

    def _to_disk(self, key: int, name: tuple[type, str], value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        new = _OnDisk(self._path(key, name), value.dtype, value.shape, order)
        try:
            with new.path.open("wb") as file:
                (value.T if order == "F" else np.ascontiguousarray(value)).tofile(file)
        except OSError as error:
            raise OSError(
                f"{new.path}: {value.nbytes:,} bytes of the fit's state could not be written "
                f"({error.strerror or error}); {self.on_disk:,} bytes were written before. Raise "
                f"cache_size, or set TMPDIR to a folder with more room."
            ) from error
        with self._lock:
            self.on_disk += value.nbytes
        return new

    def _path(self, key: int, name: tuple[type, str]) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="leansvm-")
            self._files += 1
            return Path(self._folder.name, f"{key}-{name[1]}-{self._files}")


def _size(value: Any) -> int:
    return value.nbytes if isinstance(value, np.ndarray) else 0


def _maps(value: Any, old: _OnDisk) -> bool:
    """Whether an array is the map of that file, whole."""
    if not isinstance(value, np.ndarray) or value.shape != old.shape or value.dtype != old.dtype:
        return False
    base: Any = value
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    return base is not None and Path(str(base.filename)) == old.path
