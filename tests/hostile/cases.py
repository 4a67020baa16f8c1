"""The crafted model files: what is wrong with each, from the archive down to single numbers."""

import gzip
import io
import json
import pickle
import warnings
import zipfile

import numpy as np

from tests.hostile.craft import (
    BIG,
    FACTS,
    SCHEMA,
    File,
    bomb,
    case,
    edit,
    header,
    header_of,
    json_node,
    node,
    npy,
    patched,
    sparse_npz,
    tuple_node,
    write_zip,
)

# ---------------------------------------------------------------------------- the file itself

for name, content in {
    "empty": b"",
    "text": b"not a model\n" * 100,
    "pickle": pickle.dumps({"a": 1}),
    "gzip": gzip.compress(b"0" * 1000),
    "end-of-archive-only": b"PK\5\6" + b"\0" * 18,
    "end-of-archive-with-nonsense": b"PK\5\6" + b"\xff" * 18,
}.items():
    case(f"file-{name}")(lambda models, path, content=content: path.write_bytes(content))

for keep in (10, 1000, -1, -30, -500):
    case(f"file-cut-at-{keep}")(
        lambda models, path, keep=keep: path.write_bytes(models["lssvc"].read_bytes()[:keep])
    )


@case("file-flipped-bit")
def _(models, path):
    content = bytearray(models["lssvc"].read_bytes())
    with zipfile.ZipFile(models["lssvc"]) as archive:
        part = max(archive.infolist(), key=lambda part: part.filename.endswith(".npy"))
    content[part.header_offset + 200] ^= 1
    path.write_bytes(content)


@case("archive-bzip2")
def _(models, path):
    File(models["lssvc"]).write(path, zipfile.ZIP_BZIP2)


@case("archive-lzma")
def _(models, path):
    File(models["lssvc"]).write(path, zipfile.ZIP_LZMA)


@case("archive-two-schemas")
def _(models, path):
    path.write_bytes(models["lssvc"].read_bytes())
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(SCHEMA, b"{}")


@case("archive-many-parts")
def _(models, path):
    write_zip(path, File(models["lssvc"]).parts | {f"{i}.bin": b"" for i in range(2000)})


for name in (SCHEMA, FACTS):

    @case(f"archive-encrypted-{name}")
    def _(models, path, name=name):
        path.write_bytes(patched(models["lssvc"].read_bytes(), name, 6, 8, b"\1\0"))

    @case(f"archive-size-of-{name}-is-4-GB")
    def _(models, path, name=name):
        size = (2**32 - 2).to_bytes(4, "little")
        path.write_bytes(patched(models["lssvc"].read_bytes(), name, 18, 20, size * 2))


@case("archive-parts-overlap")
def _(models, path):
    """Every part of a list starts at the same place and is as large as the first."""
    parts = File(models["lssvc"]).parts | {"0.bin": b"\0" * 10**6}
    write_zip(path, parts | {f"{i}.bin": b"" for i in range(1, 300)})
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        large = archive.getinfo("0.bin")
    for i in range(1, 300):
        start = content.rindex(b"PK\1\2", 0, content.rindex(f"{i}.bin".encode()))
        entry = bytearray(content[start : start + 46])
        entry[16:28] = b"".join(n.to_bytes(4, "little") for n in (large.CRC, 10**6, 10**6))
        entry[42:46] = large.header_offset.to_bytes(4, "little")
        content = content[:start] + bytes(entry) + content[start + 46 :]
    path.write_bytes(content)


# ---------------------------------------------------------------------------- bombs


for name in (FACTS, SCHEMA, "array"):

    @case(f"bomb-{name}")
    def _(models, path, name=name):
        file = File(models["lssvc"])
        name = file.attributes()["dual_coef_"]["file"] if name == "array" else name
        path.write_bytes(bomb(file, name, BIG))

    @case(f"bomb-{name}-that-pretends-to-be-small")
    def _(models, path, name=name):
        file = File(models["lssvc"])
        name = file.attributes()["dual_coef_"]["file"] if name == "array" else name
        path.write_bytes(bomb(file, name, 1000))


@case("bomb-sparse")
def _(models, path):
    file, inner = File(models["csr"]), File(models["csr"])
    name = file.attributes()["support_vectors_"]["file"]
    with zipfile.ZipFile(io.BytesIO(file.parts[name])) as arrays:
        inner.parts = {part: arrays.read(part) for part in arrays.namelist()}
    start = header_of(f"({BIG // 8},)", pad=False)
    file.parts[name] = bomb(inner, "data.npy", len(start) + BIG, start)
    file.write(path)


@case("bomb-schema-of-blanks")
def _(models, path):
    """Far less than all parts may have together: a schema takes many times its bytes."""
    parts = File(models["lssvc"]).parts
    parts[SCHEMA] += b" " * 2**24
    write_zip(path, parts, zipfile.ZIP_DEFLATED)


@case("bomb-of-many-parts")
def _(models, path):
    file = File(models["lssvc"])
    for _ in range(20):
        file.set(f"extra{len(file.parts)}_", np.zeros(2**18))
    file.write(path, zipfile.ZIP_DEFLATED)


@case("archive-packed-part-is-cut")
def _(models, path):
    file = File(models["lssvc"])
    name = file.attributes()["support_vectors_"]["file"]
    write_zip(path, file.parts, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo(name).file_size + 8
    content = patched(path.read_bytes(), name, 22, 24, size.to_bytes(4, "little"))
    path.write_bytes(content)


def laughs(file):
    """Each list holds the one before ten times, by its id."""
    lists = []
    for level in range(1, 12):
        inner = {"__id__": level - 1, **node("ListNode", "builtins.list", content=[])}
        content = [inner] * 10 if level > 1 else []
        lists.append(node("ListNode", "builtins.list", content=content, __id__=level))
    file.attributes()["fit_report_"] = node("ListNode", "builtins.list", content=lists)


edit("bomb-lists-in-lists", "lssvc", laughs)


def one_array_many_times(file):
    shared = file.node_of(npy(np.zeros(2**17)))
    copies = [shared | {"__id__": 10**7 + i} for i in range(BIG >> 20)]
    file.attributes()["fit_report_"] = node("ListNode", "builtins.list", content=copies)


edit("bomb-one-array-many-times", "lssvc", one_array_many_times)


def from_a_number(file, kind):
    scalar = file.node_of(npy(np.array(6 * 10**9)))
    module, _, name = kind.rpartition(".")
    file.attributes()["C_"] = scalar | {"__module__": module, "__class__": name}


for kind in ("numpy.void", "numpy.bytes_", "builtins.bytearray", "numpy.zeros"):
    edit(f"bomb-{kind}-of-a-number", "lssvc", lambda f, k=kind: from_a_number(f, k))

shape = node("TupleNode", "builtins.tuple", content=[tuple_node(10**9, 10**9)])
for kind in ("scipy.sparse._csr.csr_matrix", "numpy.ndarray", "leansvm.kernels._kernel.Kernel"):
    call = node("ConstructorFromReduceNode", kind, content=shape)
    edit(f"bomb-call-of-{kind}", "lssvc", lambda f, n=call: f.attributes().update(C_=n))

edit("bomb-empty-lists", "lssvc", lambda f: f.schema.update(extra=[[]] * 300_000))
edit("bomb-empty-lists-in-facts", "lssvc", lambda f: f.facts.update(metadata=[[]] * 300_000))

# ---------------------------------------------------------------------------- facts

for name, facts in {
    "list": [],
    "no-format": {"model": "LSSVC", "metadata": {}},
    "format-true": {"format": True, "model": "LSSVC", "metadata": {}},
    "format-0": {"format": 0, "model": "LSSVC", "metadata": {}},
    "format-text": {"format": "1", "model": "LSSVC", "metadata": {}},
    "format-99": {"format": 99, "leansvm": "\x1b[2J", "model": "LSSVC", "metadata": {}},
    "no-metadata": {"format": 1, "model": "LSSVC"},
    "metadata-list": {"format": 1, "model": "LSSVC", "metadata": []},
    "no-model": {"format": 1, "metadata": {}},
}.items():
    edit(f"facts-{name}", "lssvc", lambda f, facts=facts: setattr(f, "facts", facts))

for name, text in {
    "not-json": b"{",
    "not-unicode": b"\xff\xfe",
    "deep": b'{"format": 1, "metadata": ' + b"[" * 10**5,
    "long-number": b'{"format": 1' + b"0" * 10**5 + b"}",
}.items():

    @case(f"facts-{name}")
    def _(models, path, text=text):
        write_zip(path, File(models["lssvc"]).parts | {FACTS: text})

    @case(f"schema-{name}")
    def _(models, path, text=text):
        write_zip(path, File(models["lssvc"]).parts | {SCHEMA: text})


edit("facts-missing", "lssvc", lambda f: f.parts.pop(FACTS))

# ---------------------------------------------------------------------------- schema

edit("schema-missing", "lssvc", lambda f: f.parts.pop(SCHEMA))
edit("schema-list", "lssvc", lambda f: setattr(f, "schema", []))
edit("schema-empty", "lssvc", lambda f: setattr(f, "schema", {}))
for protocol in (0, 1, 99, -1, True, None, "2"):
    edit(f"protocol-{protocol}", "lssvc", lambda f, p=protocol: f.schema.update(protocol=p))

FUNCTIONS = {
    "function": node("FunctionNode", "os.system"),
    "builtin": node("TypeNode", "builtins.eval"),
    "own-function": node("FunctionNode", "leansvm.persistence.load"),
    "class": node("ObjectNode", "subprocess.Popen", content=None),
    "terminal": node("ObjectNode", "\x1b[31mevil.\x1b]0;title\x07", content=None),
    "operator": node("OperatorFuncNode", "operator.methodcaller", attrs=tuple_node("clear")),
    "unknown-loader": node("EvilNode", "builtins.str"),
    "cached": node("CachedNode", "builtins.str", __id__=1),
    "list-as-object": node("ListNode", "leansvm.kernels._kernel.Kernel", content=[]),
    "list-as-sparse": node("ListNode", "scipy.sparse._csr.csr_matrix", content=[json_node(9)]),
    "tree": node("TreeNode", "sklearn.tree._tree.Tree", content=json_node({})),
    "json-not-json": node("JsonNode", "builtins.str", content="{"),
    "json-deep": node("JsonNode", "builtins.str", content="[" * 10**5),
    "json-number": node("JsonNode", "builtins.str", content=7),
    "no-class": {"__loader__": "ObjectNode", "content": None},
    "class-is-a-list": {"__loader__": "ObjectNode", "__class__": [], "__module__": {}},
    "loader-is-a-list": {"__loader__": [], "__class__": "str", "__module__": "builtins"},
    "id-is-a-list": json_node(1) | {"__id__": [1]},
    "partial": node(
        "PartialNode",
        "functools.partial",
        content={
            "func": node("FunctionNode", "os.system"),
            "args": tuple_node("true"),
            "kwds": json_node(None),
            "namespace": json_node(None),
        },
    ),
    "generator": node(
        "RandomGeneratorNode",
        "numpy.random._generator.Generator",
        content={
            "bit_generator": {"content": {"bit_generator": json_node("seed")}},
            "seed_seq": json_node({}),
        },
    ),
    "method": node(
        "MethodNode",
        "leansvm.estimators.lssvm.LSSVC",
        content={
            "func": "fit",
            "obj": node("ObjectNode", "leansvm.estimators.lssvm.LSSVC", content=None),
        },
    ),
    "keys-without-types": node(
        "DictNode",
        "builtins.dict",
        content={"a": json_node(1), "b": json_node(2)},
        key_types=node("ListNode", "builtins.list", content=[]),
    ),
}
for name, evil in FUNCTIONS.items():
    edit(f"node-{name}", "lssvc", lambda f, evil=evil: f.attributes().update(C_=evil))


def deep(file):
    inner = json_node(1)
    for _ in range(300):
        inner = node("ListNode", "builtins.list", content=[inner])
    file.attributes()["C_"] = inner


edit("node-deep", "lssvc", deep)


def ancestor(file):
    file.schema["__id__"] = 5
    file.attributes()["C_"] = {**file.schema, "content": json_node({})}


edit("node-refers-to-the-model", "lssvc", ancestor)

# ---------------------------------------------------------------------------- arrays

ARRAYS = {
    "shape-too-large": header_of("(3, 10000000000)"),
    "shape-negative": header_of("(3, -1)"),
    "shape-overflows": header_of(f"({2**62}, {2**62})"),
    "shape-of-floats": header_of("(3.0, 150.0)"),
    "no-bytes-per-item": header_of("(10000000000,)", "'|V0'"),
    "items-too-large": header_of("(1,)", "'|V2147483647'"),
    "objects": header_of("(8,)", "'|O'"),
    "type-nonsense": header_of("(8,)", "'nonsense'"),
    "header-is-code": header("__import__('os').getcwd()\n"),
    "header-long": header("{" + " " * 20_000 + "}", 2),
    "header-deep": header("(" * 5000 + "\n"),
    "version-9": header("{}", 9),
    "pickle": pickle.dumps(np.zeros(3)),
    "archive": sparse_npz(a=np.zeros(3)),
    "empty": b"",
    "cut": npy(np.zeros((3, 150)))[:-8],
    "too-long": npy(np.zeros((3, 150))) + b"\0" * 8,
}
for name, content in ARRAYS.items():
    edit(
        f"array-{name}",
        "lssvc",
        lambda f, c=content: f.attributes().update(dual_coef_=f.node_of(c)),
    )
edit("array-missing", "lssvc", lambda f: f.attributes()["dual_coef_"].update(file="none.npy"))
edit("array-is-the-schema", "lssvc", lambda f: f.attributes()["dual_coef_"].update(file=SCHEMA))
edit(
    "array-in-an-archive",
    "lssvc",
    lambda f: f.attributes().update(dual_coef_=f.node_of(sparse_npz(a=np.zeros(9)), "npz")),
)


def change_sparse(file, **changes):
    node_of_rows = file.attributes()["support_vectors_"]
    with np.load(io.BytesIO(file.parts[node_of_rows["file"]])) as arrays:
        parts = dict(arrays) | changes
    file.parts[node_of_rows["file"]] = sparse_npz(**parts)


def sparse_part(file, name, place, value):
    node_of_rows = file.attributes()["support_vectors_"]
    with np.load(io.BytesIO(file.parts[node_of_rows["file"]])) as arrays:
        array = arrays[name].copy()
    array[place] = value
    change_sparse(file, **{name: array})


for name, change in {
    "index-too-large": ("indices", 3, 10**6),
    "index-negative": ("indices", 0, -5),
    "rows-go-back": ("indptr", 7, 0),
    "rows-behind-the-end": ("indptr", -1, 10**6),
    "rows-before-the-start": ("indptr", 0, -8),
    "columns-too-many": ("shape", 1, 10**9),
    "shape-too-large": ("shape", 0, 10**12),
    "not-finite": ("data", 5, np.nan),
}.items():
    edit(f"sparse-{name}", "csr", lambda f, change=change: sparse_part(f, *change))

for name, changes in {
    "indices-of-floats": {"indices": np.full(600, np.nan)},
    "other-format": {"format": np.array(b"dia"), "offsets": np.array([0])},
    "unknown-format": {"format": np.array(b"evil")},
    "extra-part": {"extra": np.zeros(3)},
    "shape-of-three": {"shape": np.array([150, 4, 4])},
    "complex": {"data": np.zeros(600, complex)},
    "too-few": {"data": np.zeros(5)},
}.items():
    edit(f"sparse-{name}", "csr", lambda f, changes=changes: change_sparse(f, **changes))

# ---------------------------------------------------------------------------- numbers


def scaled(file, name, change, kind=""):
    file.set(name, change(file.array(name, kind)), kind)


def wider(array):
    return np.concatenate([array, array], axis=-1)


def longer(array):
    return np.concatenate([array, array])


def not_finite(array):
    array = array.copy()
    array.flat[-1] = np.nan
    return array


def far(array):
    array = array.copy()
    array.flat[-1] = 10**9
    return array


def as_integers(array):
    return np.arange(array.size).reshape(array.shape)


WRONG = (wider, longer, not_finite, as_integers)
for model, names in {
    "lssvc": ("dual_coef_", "support_vectors_", "intercept_", "gamma_"),
    "linear": ("coef_",),
    "low-rank": ("centers_", "shapes_", "coef_"),
    "svc": ("_dual_coef_", "support_vectors_", "_intercept_"),
}.items():
    for name in names:
        for change in WRONG[: 3 + (name != "gamma_")]:
            edit(
                f"{model}-{name}-{change.__name__}",
                model,
                lambda f, name=name, change=change: scaled(f, name, change),
            )

for model, name, change in (
    ("lssvc", "classes_", longer),
    ("lssvc", "support_", longer),
    ("precomputed", "support_", far),
    ("precomputed", "support_", np.negative),
    ("low-rank", "shapes_", np.negative),
    ("svc", "_n_support", far),
    ("svc", "_n_support", np.negative),
    ("svc", "support_", longer),
    ("sums", "_selected", np.negative),
):
    edit(
        f"{model}-{name}-{change.__name__}",
        model,
        lambda f, name=name, change=change: scaled(f, name, change),
    )

for model, kind, name, change in (
    ("sums", "Sums", "gram", wider),
    ("sums", "Sums", "gram", not_finite),
    ("sums", "Sums", "shift", longer),
    ("folds", "FoldSums", "grams", wider),
    ("folds", "FoldSums", "base", longer),
    ("sums", "KernelFeatures", "points", wider),
    ("sums", "KernelFeatures", "L", wider),
    ("sums", "KernelFeatures", "kept", far),
    ("basis", "KernelFeatures", "points", longer),
    ("basis", "KernelFeatures", "points", wider),
    ("basis", "KernelFeatures", "L", longer),
    ("sequence", "ActiveSet", "X", wider),
    ("sequence", "ActiveSet", "X", longer),
    ("sequence", "ActiveSet", "Y", wider),
    ("sequence", "ActiveSet", "weight", np.negative),
):
    edit(
        f"{model}-{kind}-{name}-{change.__name__}",
        model,
        lambda f, k=kind, name=name, change=change: scaled(f, name, change, k),
    )

for model, name, value in (
    ("lssvc", "n_features_in_", 3),
    ("lssvc", "n_features_in_", "4"),
    ("lssvc", "n_features_in_", 10**12),
    ("lssvc", "n_support_", 7),
    ("lssvc", "gamma_", None),
    ("lssvc", "gamma_", -1.0),
    ("lssvc", "kernel", "evil"),
    ("lssvc", "kernel_", "evil"),
    ("lssvc", "kernel_", "precomputed"),
    ("lssvc", "degree", "3"),
    ("lssvc", "dual_coef_", [[1.0]]),
    ("lssvc", "calibration_scale_", "1"),
    ("lssvc", "calibration_slopes_", [1.0, 2.0]),
    ("lssvc", "clip_", [[0.0], [1.0]]),
    ("lssvc", "C", -1.0),
    ("low-rank", "function_", "rbf"),
    ("low-rank", "n_features_in_", 400),
    ("sums", "_features", None),
    ("sums", "_sums", None),
    ("sequence", "_sequence", [1, 2]),
    ("basis", "_features", None),
    ("svc", "n_features_in_", 9),
):
    edit(
        f"{model}-{name}-is-{json.dumps(value)}",
        model,
        lambda f, name=name, value=value: f.set(name, value),
    )

for model, name in (
    ("lssvc", "support_vectors_"),
    ("lssvc", "intercept_"),
    ("lssvc", "classes_"),
    ("low-rank", "shapes_"),
    ("basis", "normalization_"),
):
    edit(f"{model}-{name}-missing", model, lambda f, name=name: f.remove(name))


for model, name in (("low-rank", "centers_"), ("low-rank", "shapes_"), ("lssvc", "dual_coef_")):
    for kind in ("float16", "longdouble", ">f8"):
        edit(
            f"{model}-{name}-of-{kind.strip('>')}",
            model,
            lambda f, name=name, kind=kind: scaled(f, name, lambda a: a.astype(kind)),
        )


def place_of_generator(file):
    (state,) = (n for n in file.nodes() if n["__loader__"] == "RandomStateNode")
    state["content"]["content"]["state"]["content"]["pos"] = json_node(10**8)


edit("sums-random-generator-reads-behind-its-state", "sums", place_of_generator)
