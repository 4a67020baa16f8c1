"""Least-squares and reduced-basis kernel machines behind scikit-learn's API.

Names and submodules are loaded at their first use: `import leansvm` alone loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leansvm._version import __version__

if TYPE_CHECKING:
    from leansvm._device import to_device, to_numpy
    from leansvm.estimators import (
        L2SVC,
        LSSVC,
        LSSVR,
        KernelBasis,
        LowRankLSSVC,
        LowRankLSSVR,
        ReducedSVC,
        ReducedSVR,
        SparseLSSVC,
        SparseLSSVR,
    )
    from leansvm.export.predictor import Predictor
    from leansvm.persistence import load
    from leansvm.rows import open_dataset

__all__ = [
    "L2SVC",
    "LSSVC",
    "LSSVR",
    "KernelBasis",
    "LowRankLSSVC",
    "LowRankLSSVR",
    "Predictor",
    "ReducedSVC",
    "ReducedSVR",
    "SparseLSSVC",
    "SparseLSSVR",
    "__version__",
    "load",
    "open_dataset",
    "to_device",
    "to_numpy",
]

# where names are that are not in `estimators`
_HOMES = {
    "Predictor": "export.predictor",
    "load": "persistence",
    "open_dataset": "rows",
    "to_device": "_device",
    "to_numpy": "_device",
}


def __getattr__(name: str) -> Any:
    """Load a public name, or a submodule, that was not used before."""
    if name in __all__:
        value = getattr(import_module(f"leansvm.{_HOMES.get(name, 'estimators')}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return import_module(f"leansvm.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"leansvm.{name}":  # the submodule is there, and misses something
                raise
    raise AttributeError(f"module 'leansvm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
