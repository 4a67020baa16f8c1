"""Files that nobody would write by accident, made from models that were saved."""

import copy
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import load_iris
from sklearn.svm import SVC

import leansvm
from leansvm import persistence

FACTS, SCHEMA = "leansvm.json", "schema.json"
BIG = 2**27  # bytes that a bomb unpacks to: more than may be taken


class File:
    """The parts of a saved model, to be changed and written again."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            self.parts = {name: archive.read(name) for name in archive.namelist()}
        self.schema = json.loads(self.parts[SCHEMA])
        self.facts = json.loads(self.parts[FACTS])

    def nodes(self) -> Iterator[dict[str, Any]]:
        stack: list[Any] = [self.schema]
        while stack:
            item = stack.pop()
            inside = item.values() if isinstance(item, dict) else item
            stack.extend(inner for inner in inside if isinstance(inner, dict | list))
            if isinstance(item, dict) and "__loader__" in item:
                yield item

    def attributes(self, kind: str = "") -> dict[str, Any]:
        """The attributes of the object of this class; of the model without one."""
        return self._dictionary(kind)["content"]

    def _dictionary(self, kind: str) -> dict[str, Any]:
        for found in self.nodes():
            if found["__loader__"] == "ObjectNode" and found["__class__"] == kind:
                return found["content"]
        return self.schema["content"]

    def remove(self, name: str) -> None:
        del self.attributes()[name]
        self.schema["content"]["key_types"]["content"].pop()

    def array(self, name: str, kind: str = "") -> np.ndarray:
        part = self.parts[self.attributes(kind)[name]["file"]]
        return np.load(io.BytesIO(part), allow_pickle=False)

    def set(self, name: str, value: Any, kind: str = "") -> None:
        """Give an attribute another value: an array, or what JSON has."""
        attributes = self.attributes(kind)
        if name not in attributes:
            self._dictionary(kind)["key_types"]["content"].append(node("TypeNode", "builtins.str"))
        if isinstance(value, np.ndarray):
            attributes[name] = self.node_of(npy(value))
        else:
            attributes[name] = json_node(value)

    def node_of(self, content: bytes, suffix: str = "npy", **other: Any) -> dict[str, Any]:
        number = 10**6 + len(self.parts)
        self.parts[f"{number}.{suffix}"] = content
        node = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode"}
        node |= {"type": "numpy", "file": f"{number}.{suffix}", "__id__": number}
        return node | other

    def write(self, path: Path, compression: int = zipfile.ZIP_STORED) -> None:
        for name, content in ((SCHEMA, self.schema), (FACTS, self.facts)):
            if name in self.parts:
                self.parts[name] = json.dumps(content).encode()
        write_zip(path, self.parts, compression)


def write_zip(path: Path, parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression, compresslevel=1) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(text: str, version: int = 1, pad: bool = True) -> bytes:
    """NumPy's format with this header, and a few bytes of content."""
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode() + b"\0" * 64 * pad


def header_of(shape: str, descr: str = "'<f8'", pad: bool = True) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n"
    return header(text, pad=pad)


def json_node(value: Any) -> dict[str, Any]:
    node = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode"}
    return node | {"content": json.dumps(value), "is_json": True}


def node(loader: str, kind: str, **other: Any) -> dict[str, Any]:
    module, _, name = kind.rpartition(".")
    return {"__class__": name, "__module__": module, "__loader__": loader, **other}


def tuple_node(*items: Any) -> dict[str, Any]:
    return node("TupleNode", "builtins.tuple", content=[json_node(item) for item in items])


def sparse_npz(**parts: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **parts)
    return buffer.getvalue()


def save_models(folder: Path) -> dict[str, Path]:
    """Save one model of every kind that has arrays of its own."""
    X, y = load_iris(return_X_y=True)
    rng = np.random.RandomState(0)
    plain = {"C": 1.0, "gamma": 0.5, "n_basis": 10}
    models = {
        "lssvc": leansvm.LSSVC(gamma=np.full(4, 0.5), calibrate=True).fit(X, y),
        "linear": leansvm.L2SVC(kernel="linear").fit(X, y),
        "csr": leansvm.LSSVC().fit(csr_matrix(X), y),
        "precomputed": leansvm.LSSVC(kernel="precomputed").fit(X @ X.T, y),
        "low-rank": leansvm.LowRankLSSVC(random_state=0, tol=0.1).fit(X, y),
        "sums": leansvm.SparseLSSVC(**plain, random_state=rng, keep_state=True).fit(X, y),
        "folds": leansvm.SparseLSSVC(C="kfold", gamma=0.5, n_basis=10).partial_fit(X, y),
        "sequence": leansvm.L2SVC().partial_fit(X, y),
        "basis": leansvm.KernelBasis(10, gamma=0.5, random_state=0).fit(X),
        "svc": SVC().fit(X, y),
    }
    paths = {}
    for name, model in models.items():
        paths[name] = folder / f"{name}.skops"
        persistence.save(model, paths[name])
    return paths


def patched(content: bytes, name: str, offset_local: int, offset_list: int, value: bytes) -> bytes:
    """Change a field of a part, both at the part and in the list at the end of the archive."""
    content = bytearray(content)
    for signature, offset, place in ((b"PK\3\4", offset_local, 30), (b"PK\1\2", offset_list, 46)):
        start = content.find(signature)
        while content[start + place : start + place + len(name)] != name.encode():
            start = content.find(signature, start + 1)
            assert start >= 0
        content[start + offset : start + offset + len(value)] = value
    return bytes(content)


def bomb(file: File, name: str, declared: int, start: bytes = b"") -> bytes:
    """Return the archive with zeros in the place of a part: `BIG` bytes, however many it declares.

    A mebibyte is packed once and repeated; the archive is told afterwards that the part is packed.
    """
    packer = zlib.compressobj(1, wbits=-15)
    first = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    once = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    buffer = io.BytesIO()
    packed = first + once * (BIG >> 20) + packer.flush()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part, content in (file.parts | {name: packed}).items():
            archive.writestr(part, content)
    content = patched(buffer.getvalue(), name, 8, 10, b"\x08\0")
    return patched(content, name, 22, 24, declared.to_bytes(4, "little"))


Case = Callable[[dict[str, Path], Path], None]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    def register(function: Case) -> Case:
        assert name not in CASES
        CASES[name] = function
        return function

    return register


def edit(name: str, model: str, change: Callable[[File], Any]) -> None:
    """A case that changes the parts of a model."""

    def write(models: dict[str, Path], path: Path) -> None:
        file = File(models[model])
        before = copy.deepcopy((file.parts, file.schema, file.facts))
        change(file)
        assert before != (file.parts, file.schema, file.facts), "nothing was changed"
        used = {str(n.get("file")) for n in file.nodes()} | {FACTS, SCHEMA}
        file.parts = {name: part for name, part in file.parts.items() if name in used}
        file.write(path)

    case(name)(write)
