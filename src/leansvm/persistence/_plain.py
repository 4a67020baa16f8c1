"""Models made of estimators, lists, numbers and arrays: built here, without skops.

Importing skops imports all of scikit-learn, which takes seconds; most models need none of it. A
schema with any other node is left to skops. Both ways give the same objects: a node that occurs
several times (it has the same id) is built once.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from leansvm import basis, estimators, kernels, losses, low_rank, tables
from leansvm.basis.features import KernelFeatures
from leansvm.dual.active_set import ActiveSet
from leansvm.persistence._schema import SCALARS, nodes_of
from leansvm.ridge.kfold import FoldSums, KFoldSums
from leansvm.ridge.sums import Sums
from leansvm.tables._columns import CategoryColumn, DateColumn, NumberColumn

_LIST_OF_COLUMNS = "sklearn.compose._column_transformer._RemainderColsList"

# Public parts of scikit-learn whose estimators hold lists, numbers and arrays alone.
_PARTS_OF_SKLEARN = frozenset(
    {
        "compose",
        "decomposition",
        "feature_selection",
        "impute",
        "kernel_approximation",
        "pipeline",
        "preprocessing",
        "random_projection",
    }
)
KEYS = {f"builtins.{kind.__name__}": kind for kind in (bool, float, int, str)}
_CONTAINERS = frozenset(
    {"JsonNode", "ListNode", "TupleNode", "SliceNode", "DTypeNode", "SparseMatrixNode"}
)


@cache
def own_types() -> dict[str, type]:
    """Return the classes of this package that a model may consist of, by their full names."""
    public = [
        getattr(module, name)
        for module in (estimators, basis, low_rank, tables)
        for name in module.__all__
    ]
    parts = [kernels.Kernel, kernels.Mixture, Sums, FoldSums, KFoldSums, KernelFeatures, ActiveSet]
    parts += [NumberColumn, CategoryColumn, DateColumn]
    return {
        f"{value.__module__}.{value.__qualname__}": value
        for value in (*public, *parts, *vars(losses).values())
        if inspect.isclass(value) and value.__module__.startswith("leansvm.")
    }


def plain_types(schema: Any) -> dict[str, type] | None:
    """Return the types that a schema names, by their full names; None where skops is needed."""
    found: dict[str, type] = {}
    for node in nodes_of(schema):
        loader, module, name = node["__loader__"], node["__module__"], node["__class__"]
        kind: Any = None
        if loader in _CONTAINERS or (loader, name) == ("DictNode", "dict"):
            continue
        if loader == "NdArrayNode" and (module, name) == ("numpy", "ndarray"):
            continue
        full = f"{module}.{name}"
        if loader in ("NdArrayNode", "TypeNode"):
            kind = getattr(np, name, None) if full in SCALARS else KEYS.get(full)
        elif loader == "ObjectNode":
            kind = own_types().get(full) or estimator_of_sklearn(module, name)
        if kind is None:
            return None
        found[full] = kind
    return found


def estimator_of_sklearn(module: str, name: str) -> type | None:
    """Return a public estimator of some parts of scikit-learn; import nothing but these parts.

    Or the list in which a ColumnTransformer of scikit-learn before 1.7 keeps columns.
    """
    package, _, inside = module.partition(".")
    part = inside.partition(".")[0]
    if package != "sklearn" or part not in _PARTS_OF_SKLEARN:
        return None
    if f"{module}.{name}" == _LIST_OF_COLUMNS:
        kind: Any = getattr(importlib.import_module(module), name, None)
        return kind if inspect.isclass(kind) else None
    public = importlib.import_module(f"sklearn.{part}")
    found: Any = getattr(public, name, None) if name in public.__all__ else None
    estimator = inspect.isclass(found) and issubclass(found, BaseEstimator)
    return found if estimator and found.__module__ == module else None


def build(schema: Any, parts: dict[str, bytes], types: dict[str, type]) -> Any:
    """Return the model of a schema that was checked.

    Parameters
    ----------
    schema : dict
        Its node.
    parts : dict of bytes
        The arrays, by name; each is taken out when it is built.
    types : dict
        What `plain_types` found.
    """
    return _Builder(parts, types).value(schema)


class _Builder:
    """Builds nodes, each id once; one method for each way of building."""

    def __init__(self, parts: dict[str, bytes], types: dict[str, type]) -> None:
        self.parts, self.types = parts, types
        self.built: dict[Any, Any] = {}  # by id

    def value(self, node: dict[str, Any]) -> Any:
        identity = node.get("__id__")
        if identity and identity in self.built:
            return self.built[identity]
        value = getattr(self, f"_of_{node['__loader__']}")(node)
        if identity:
            self.built[identity] = value
        return value

    def _type(self, node: dict[str, Any]) -> Any:
        return self.types[f"{node['__module__']}.{node['__class__']}"]

    def _values(self, nodes: list[Any]) -> list[Any]:
        return [self.value(node) for node in nodes]

    def _of_JsonNode(self, node: dict[str, Any]) -> Any:
        return json.loads(node["content"])

    def _of_ListNode(self, node: dict[str, Any]) -> Any:
        return self._values(node["content"])

    def _of_TupleNode(self, node: dict[str, Any]) -> Any:
        return tuple(self._values(node["content"]))

    def _of_SliceNode(self, node: dict[str, Any]) -> Any:
        return slice(*(node["content"][name] for name in ("start", "stop", "step")))

    def _of_TypeNode(self, node: dict[str, Any]) -> Any:
        return self._type(node)

    def _of_DictNode(self, node: dict[str, Any]) -> Any:
        kinds = self.value(node["key_types"])
        items = zip(kinds, node["content"].items(), strict=True)
        return {kind(key): self.value(value) for kind, (key, value) in items}

    def _of_DTypeNode(self, node: dict[str, Any]) -> Any:
        return self.value(node["content"]).dtype

    def _of_SparseMatrixNode(self, node: dict[str, Any]) -> Any:
        return sparse.load_npz(io.BytesIO(self.parts.pop(node["file"])))

    def _of_NdArrayNode(self, node: dict[str, Any]) -> Any:
        if node["type"] == "json":  # an array of objects
            items, shape = self._values(node["content"]), self.value(node["shape"])
            if len(shape) != 1:
                return np.array(items, dtype=object)
            array = np.empty(len(items), dtype=object)
            for i, item in enumerate(items):
                array[i] = item
            return array
        array = np.load(io.BytesIO(self.parts.pop(node["file"])), allow_pickle=False)
        return array if node["__class__"] == "ndarray" else self._type(node)(array)

    def _of_ObjectNode(self, node: dict[str, Any]) -> Any:
        kind = self._type(node)
        instance = kind.__new__(kind)
        state = None if node.get("content") is None else self.value(node["content"])
        if state is not None and hasattr(instance, "__setstate__"):
            instance.__setstate__(state)
        elif state is not None:
            vars(instance).update(state)
        return instance
