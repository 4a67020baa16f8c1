"""Models made of estimators, lists, numbers and arrays: written here, without skops.

The counterpart of `_plain`: the same nodes as skops writes, with short ids. A model that holds
anything else is left to skops.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
from scipy import sparse

from leansvm.persistence._plain import KEYS, estimator_of_sklearn, own_types
from leansvm.persistence._schema import PROTOCOL, SCALARS, SPARSE_TYPES, with_keys


class _NotPlainError(Exception):
    """The model holds something that skops has to write."""


def write(model: Any) -> tuple[dict[str, bytes], Any] | None:
    """Return the arrays of a model, by name, and its schema; None where skops is needed."""
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
        known = own_types().get(_full(kind)) or estimator_of_sklearn(kind.__module__, kind.__name__)
        if known is not kind:
            raise _NotPlainError
        state = value.__getstate__()
        if state is not None and type(state) is not dict:
            raise _NotPlainError
        return None if state is None else self.node(state)


def _full(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _ends(value: slice) -> dict[str, Any]:
    return {"start": value.start, "stop": value.stop, "step": value.step}


def _type(kind: type) -> dict[str, Any]:
    if _full(kind) not in SCALARS | KEYS.keys():
        raise _NotPlainError
    return {"__class__": kind.__name__, "__module__": kind.__module__, "__loader__": "TypeNode"}
