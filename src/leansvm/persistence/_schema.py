"""The schema of a model: a tree of nodes, each with the type it builds and how it is built.

skops refuses types that are not trusted. The rules here come before: a way of building may build
only the types it is meant for, an array belongs to one node, and a node that occurs several times
(it has the same id) is the same everywhere, so that the tree cannot be larger than its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any

import numpy as np

PROTOCOL = 2  # of skops; older ones build some nodes in other ways
CALLBACKS = "_skl_callbacks"  # where scikit-learn keeps them; they belong to a session, not a file
SPARSE_TYPES = frozenset(
    f"scipy.sparse._{kind}.{kind}_{form}" for kind in ("csr", "csc") for form in ("matrix", "array")
)
# scalars; numpy.void(n) and numpy.bytes_(n) would build n bytes out of a number
SCALARS = frozenset({"numpy.bool", "numpy.bool_", "numpy.str_"}) | {
    f"numpy.{np.dtype(code).type.__name__}" for code in "bhilqBHILQefdgFDG"
}
_BUILDS: dict[str, frozenset[str] | None] = {
    "JsonNode": frozenset({"builtins.str"}),
    "ListNode": frozenset({"builtins.list"}),
    "TupleNode": frozenset({"builtins.tuple"}),
    "SetNode": frozenset({"builtins.set"}),
    "SliceNode": frozenset({"builtins.slice"}),
    "BytesNode": frozenset({"builtins.bytes"}),
    "DictNode": frozenset(
        {"builtins.dict", "collections.OrderedDict", "sklearn.utils._bunch.Bunch"}
    ),
    "DefaultDictNode": frozenset({"collections.defaultdict"}),
    "NdArrayNode": SCALARS | {"numpy.ndarray"},
    "MaskedArrayNode": frozenset({"numpy.ma.MaskedArray"}),
    "DTypeNode": frozenset({"numpy.dtype"}),
    "RandomStateNode": frozenset({"numpy.random.mtrand.RandomState"}),
    "RandomGeneratorNode": frozenset({"numpy.random._generator.Generator"}),
    "SparseMatrixNode": SPARSE_TYPES,
    # what skops and `trusted_types` trust
    "ObjectNode": None,
    "FunctionNode": None,
    "TypeNode": None,
    "LossNode": None,
}
# These call a function or a constructor, which skops does for every trusted type. Here only types
# that the user has named may be called; skops reports the others.
_CALLS = frozenset(
    {"ConstructorFromReduceNode", "MethodNode", "PartialNode", "OperatorFuncNode", "TreeNode"}
)
_SUFFIX = {"NdArrayNode": ".npy", "SparseMatrixNode": ".npz", "BytesNode": ".bin"}


def check_schema(schema: Any, parts: Iterable[str], known: Set[str], trusted: Set[str]) -> None:
    """Refuse a schema that breaks a rule.

    Parameters
    ----------
    schema : dict
        What the archive has for a schema.
    parts : iterable of str
        Names of the parts of the archive but schema and facts.
    known, trusted : set of str
        Types that this package trusts, and those that the user does.
    """
    if not isinstance(schema, dict) or schema.get("protocol") != PROTOCOL:
        raise ValueError("its schema has an unknown protocol")
    nodes = _Nodes(frozenset(parts), known, trusted)
    nodes.count(schema)
    if unused := nodes.parts - nodes.owner_of.keys():
        raise ValueError(f"its part {min(unused)} belongs to nothing")


def with_keys(schema: Any) -> Any:
    """Write the key False of a dictionary so that it is read back as False; drop callbacks.

    JSON turns False into the text "false", which is true; the empty text is not.
    """
    for node in nodes_of(schema):
        if node["__loader__"] != "DictNode":
            continue
        kinds, content = node["key_types"]["content"], node["content"]
        if len(kinds) != len(content):
            raise ValueError("a dictionary has keys that are the same as text, such as 1 and '1'")
        if CALLBACKS in content:
            kinds.pop(list(content).index(CALLBACKS))
            del content[CALLBACKS]
        booleans = [kind["__class__"] in ("bool", "bool_") for kind in kinds]
        node["content"] = {
            "" if boolean and key == "false" else key: value
            for boolean, (key, value) in zip(booleans, content.items(), strict=True)
        }
    return schema


def nodes_of(state: Any) -> Iterator[dict[str, Any]]:
    """Yield all nodes of a part of a schema."""
    stack = [state]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
            if "__loader__" in item:
                yield item
        elif isinstance(item, list):
            stack.extend(item)


class _Nodes:
    """Counts nodes and checks each of them."""

    def __init__(self, parts: Set[str], known: Set[str], trusted: Set[str]) -> None:
        self.parts, self.known, self.trusted = parts, known, trusted
        self.size_of: dict[Any, int] = {}  # by id
        self.owner_of: dict[str, Any] = {}  # ids, by file

    def count(self, state: Any) -> int:
        """Return the number of nodes in a part of the schema."""
        if isinstance(state, list):
            return sum(map(self.count, state))
        if not isinstance(state, dict):
            return 0
        size = sum(map(self.count, state.values()))
        if "__loader__" not in state:
            return size
        self._check(state)
        size += 1
        identity = state.get("__id__")
        if identity is not None and self.size_of.setdefault(identity, size) != size:
            raise ValueError(f"two different objects have the id {identity}")
        return size

    def _check(self, node: dict[str, Any]) -> None:
        loader, kind = node["__loader__"], f"{node['__module__']}.{node['__class__']}"
        if kind not in self.trusted:
            allowed = kind not in self.known if loader in _CALLS else loader in _BUILDS
            if not allowed or kind not in (_BUILDS.get(loader) or {kind}):
                raise ValueError(f"its {loader} builds {kind}")
        if loader == "DictNode" and len(node["key_types"]["content"]) != len(node["content"]):
            raise ValueError("a dictionary does not have one type for each key")
        if "file" in node:
            self._check_file(node)

    def _check_file(self, node: dict[str, Any]) -> None:
        """Refuse a file that is missing, of another kind, or read by several nodes."""
        name, identity = node["file"], node.get("__id__")
        if name not in self.parts or not name.endswith(_SUFFIX.get(node["__loader__"], "")):
            raise ValueError(f"its part {name} is missing")
        if not identity or self.owner_of.setdefault(name, identity) != identity:
            raise ValueError(f"its part {name} is read by several objects")
