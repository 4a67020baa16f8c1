"""Models made of estimators, lists, numbers and arrays: written and built here, without skops.

Importing skops imports all of scikit-learn, which takes seconds; most models need none of it. The
nodes are those that skops writes, with short ids. Models and schemas with any other node are left
to skops. Both ways give the same objects: a node that occurs several times (it has the same id) is
built once.

A file names the module of every class in it. `FORMER_NAMES` are names of earlier versions, and the
classes they mean now.
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
from leansvm.persistence._schema import (
    CALLBACKS,
    PROTOCOL,
    SCALARS,
    SPARSE_TYPES,
    nodes_of,
    with_keys,
)
from leansvm.ridge.kfold import FoldSums, KFoldSums
from leansvm.ridge.sums import Sums
from leansvm.tables._columns import CategoryColumn, DateColumn, NumberColumn

_LIST_OF_COLUMNS = "sklearn.compose._column_transformer._RemainderColsList"

# Public parts of scikit-learn whose estimators hold only lists, numbers and arrays.
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
_KEYS = {f"builtins.{kind.__name__}": kind for kind in (bool, float, int, str)}
_CONTAINERS = frozenset(
    {"JsonNode", "ListNode", "TupleNode", "SliceNode", "DTypeNode", "SparseMatrixNode"}
)
FORMER_NAMES: dict[str, type] = {
    "leansvm.functions.rbf.RBF": low_rank.RBF,
    "leansvm.functions.robust_rbf.RobustRBF": low_rank.RobustRBF,
    "leansvm.functions.simplex.Simplex": low_rank.Simplex,
    "leansvm.solvers.active_set.ActiveSet": ActiveSet,
    "leansvm.solvers.features.KernelFeatures": KernelFeatures,
    "leansvm.solvers.kfold.FoldSums": FoldSums,
    "leansvm.solvers.kfold.KFoldSums": KFoldSums,
    "leansvm.solvers.sums.Sums": Sums,
}


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
    """Return the types that a schema names, by their full names; None if skops is needed."""
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
            kind = getattr(np, name, None) if full in SCALARS else _KEYS.get(full)
        elif loader == "ObjectNode":
            kind = own_types().get(full) or _estimator_of_sklearn(module, name)
        if kind is None:
            return None
        found[full] = kind
    return found


def _estimator_of_sklearn(module: str, name: str) -> type | None:
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


def with_present_names(schema: Any) -> Any:
    """Replace former names of classes in a schema, in place; return it."""
    for node in nodes_of(schema):
        kind = FORMER_NAMES.get(f"{node['__module__']}.{node['__class__']}")
        if kind is not None:
            node["__module__"], node["__class__"] = kind.__module__, kind.__qualname__
    return schema


# ---------------------------------------------------------------------------- writing


class _NotPlainError(Exception):
    """The model holds something that skops has to write."""


def write(model: Any) -> tuple[dict[str, bytes], Any] | None:
    """Return the arrays of a model, by name, and its schema; None if skops is needed."""
    writer = _Writer()
    try:
        schema = writer.node(model) | {"protocol": PROTOCOL, "_skops_version": "0.11"}
    except _NotPlainError:
        return None
    return writer.parts, with_keys(json.loads(json.dumps(schema)))


class _Writer:
    """Turns objects into nodes; those that occur several times have one id."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        self.known: dict[int, tuple[int, Any]] = {}  # own id and object, which has to stay

    def node(self, value: Any) -> dict[str, Any]:
        """Return the node of an object."""
        kind = type(value)
        identity, _ = self.known.setdefault(id(value), (len(self.known) + 1, value))
        node = {"__class__": kind.__name__, "__module__": kind.__module__}
        if kind in (str, int, float, bool, type(None)):
            content = {"content": json.dumps(value), "is_json": True}
            node = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode"}
        elif kind in (list, tuple):
            content = {"content": [self.node(item) for item in value]}
            node["__loader__"] = "ListNode" if kind is list else "TupleNode"
        elif kind is slice and {type(end) for end in _ends(value).values()} <= {int, type(None)}:
            node["__loader__"], content = "SliceNode", {"content": _ends(value)}
        elif kind is dict:
            node["__loader__"], content = "DictNode", self._items(value)
        elif kind is type:
            node, content = _type(value), {}
        elif isinstance(value, np.dtype):
            node = {"__class__": "dtype", "__module__": "numpy", "__loader__": "DTypeNode"}
            content = {"content": self.node(np.empty(0, value))}
        elif kind is np.ndarray or (isinstance(value, np.generic) and _full(kind) in SCALARS):
            node["__loader__"], content = "NdArrayNode", self._array(value, identity)
        elif _full(kind) in SPARSE_TYPES:
            node["__loader__"], content = "SparseMatrixNode", self._sparse(value, identity)
        else:
            node["__loader__"], content = "ObjectNode", {"content": self._state(value)}
        return node | content | {"__id__": identity}

    def _items(self, value: dict[Any, Any]) -> dict[str, Any]:
        kinds = self.node([type(key) for key in value])
        keys = [key.item() if isinstance(key, np.generic) else key for key in value]
        content = {key: self.node(item) for key, item in zip(keys, value.values(), strict=True)}
        return {"content": content, "key_types": kinds}

    def _array(self, value: Any, identity: int) -> dict[str, Any]:
        if value.dtype == object:
            items = [self.node(item) for item in value.tolist()]
            return {"type": "json", "content": items, "shape": self.node(value.shape)}
        file = io.BytesIO()
        np.save(file, value, allow_pickle=False)
        self.parts[f"{identity}.npy"] = file.getvalue()
        return {"type": "numpy", "file": f"{identity}.npy"}

    def _sparse(self, value: Any, identity: int) -> dict[str, Any]:
        file = io.BytesIO()
        sparse.save_npz(file, value, compressed=False)
        self.parts[f"{identity}.npz"] = file.getvalue()
        return {"type": "scipy", "file": f"{identity}.npz"}

    def _state(self, value: Any) -> Any:
        kind = type(value)
        known = own_types().get(_full(kind)) or _estimator_of_sklearn(
            kind.__module__, kind.__name__
        )
        if known is not kind:
            raise _NotPlainError
        state = value.__getstate__()
        if state is not None and type(state) is not dict:
            raise _NotPlainError
        return None if state is None else self.node({k: state[k] for k in state if k != CALLBACKS})


def _full(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _ends(value: slice) -> dict[str, Any]:
    return {"start": value.start, "stop": value.stop, "step": value.step}


def _type(kind: type) -> dict[str, Any]:
    if _full(kind) not in SCALARS | _KEYS.keys():
        raise _NotPlainError
    return {"__class__": kind.__name__, "__module__": kind.__module__, "__loader__": "TypeNode"}


# ---------------------------------------------------------------------------- building


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
