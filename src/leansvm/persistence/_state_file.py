"""States in files: a zip archive of arrays in NumPy's format and of facts in JSON.

Nothing is packed, and no part may declare more bytes than it has in the file, so that reading takes
a few times the bytes of the file. Every array must have the type with which it was written, because
sums of another type would have another accuracy. There is no pickle.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import sparse

from leansvm._atomic import replacing
from leansvm._version import __version__
from leansvm.basis.features import KernelFeatures
from leansvm.kernels import Kernel, Mixture
from leansvm.persistence._archive import check_header, check_parts, check_regular, read_part
from leansvm.ridge.kfold import FoldSums
from leansvm.ridge.state import FORMAT, FitState
from leansvm.ridge.state_checks import StateError
from leansvm.ridge.sums import Sums

_FACTS, _KIND = "state.json", "leansvm fit state"
_MOST_FACTS = 2**16  # bytes
_ALWAYS = {"L", "kept", "selected", "shift"}
_SOMETIMES = {"points", "data", "indices", "indptr"}
_SOMETIMES |= {"among", "gamma", "clip", "classes", "class_weight", "names"}
_SUMS = ({"gram"}, {"grams", "base"})
# types of parts that need not be float64, and kinds of those with labels and names
_TYPES: dict[str, tuple[str, ...]] = {
    "among": ("bool",),
    **dict.fromkeys(("points", "data", "gamma", "clip"), ("float32", "float64")),
    **dict.fromkeys(("indices", "indptr", "kept", "selected"), ("int32", "int64")),
}
_KINDS = {"classes": "biufU", "names": "U"}
# the numbers of a mixture of kernels
_MIXTURE = re.compile(r"mixture-(weights|clip|linear_clip|origin|features|(gamma|knots)\d{1,6})")


# ---------------------------------------------------------------------------- writing


def write_state(state: FitState, path: str | os.PathLike[str]) -> None:
    """Write a state; the file appears under its name when it is complete."""
    facts, arrays = _taken_apart(state)
    with replacing(Path(path)) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_FACTS), json.dumps(facts))
        for name, array in arrays.items():
            part = zipfile.ZipInfo(f"{name}.npy")  # no date: equal states are equal files
            with archive.open(part, "w", force_zip64=True) as opened:
                npy.write_array(opened, np.ascontiguousarray(array), allow_pickle=False)


def _taken_apart(state: FitState) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the facts of a state, for JSON, and its arrays."""
    features, kernel, sums = state.features, state.features.kernel, state.sums
    if callable(kernel.name):
        raise StateError(
            "A state with a callable kernel cannot be saved, as a file holds no code: keep it in "
            "memory, or use a kernel that has a name."
        )
    arrays = {"L": features.L, "kept": features.kept, "shift": sums.shift}
    arrays["selected"] = state.selected
    if state.among is not None:
        arrays["among"] = state.among
    if sparse.issparse(features.points):
        arrays |= {name: getattr(features.points, name) for name in ("data", "indices", "indptr")}
    else:
        arrays["points"] = features.points
    if isinstance(sums, FoldSums):
        arrays |= {"grams": sums.grams, "base": sums.base}
    else:
        arrays["gram"] = sums.gram
    mixture = kernel.given if isinstance(kernel.given, Mixture) else None
    if mixture is not None:
        arrays |= {f"mixture-{name}": array for name, array in mixture.numbers().items()}
    if np.ndim(kernel.gamma):
        arrays["gamma"] = kernel.gamma
    if kernel.clip is not None:
        arrays["clip"] = np.stack(kernel.clip)
    if state.class_weight is not None:
        arrays["class_weight"] = state.class_weight
    if state.classes is not None:
        arrays["classes"] = _labels(state.classes)
    if state.feature_names is not None:
        arrays["names"] = np.array(state.feature_names, dtype=str)
    facts = {
        "kind": _KIND,
        "format": state.version,
        "leansvm": __version__,
        "kernel": kernel.name,
        "parts": None if mixture is None else [part.kernel for part in mixture.parts],
        "gamma": None if np.ndim(kernel.gamma) else float(kernel.gamma),
        "degree": kernel.degree,
        "coef0": kernel.coef0,
        "bias_penalty": None if np.isinf(state.bias_penalty) else state.bias_penalty,
        "n_features": state.n_features,
        "n_rows": state.n_rows,
        "n_outputs": sums.n_outputs,
        "count": sums.count,
        "by_groups": isinstance(sums, FoldSums) and sums.by_groups,
        "single_output": state.single_output,
        "text_labels": state.classes is not None and state.classes.dtype.kind == "O",
    }
    return facts, arrays


def _labels(classes: NDArray[Any]) -> NDArray[Any]:
    """Return labels as an array of numbers or text."""
    if classes.dtype.kind == "O" and all(isinstance(label, str) for label in classes):
        classes = classes.astype(str)
    if classes.dtype.kind not in "biufU":
        raise StateError(
            f"Labels of type {classes.dtype} cannot be saved: use numbers or text as labels."
        )
    return classes


# ---------------------------------------------------------------------------- reading


def read_state(path: str | os.PathLike[str]) -> FitState:
    """Read a state; its parts are checked against each other."""
    path = Path(path)
    try:
        check_regular(path)
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            check_parts(archive, os.fstat(file.fileno()).st_size, packed=False)
            facts = _read_facts(archive, path)
            arrays = _read_arrays(archive)
        return FitState(**_put_together(facts, arrays))
    except (StateError, OSError, MemoryError):
        raise
    except Exception as error:  # zipfile, json and NumPy raise what the content leads to
        words = ascii(f"{type(error).__name__}: {error}")[1:-1][:300]
        raise StateError(f"{path} is not a state, or is damaged: {words}") from error


def _read_facts(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    if _FACTS not in archive.namelist():
        raise StateError(f"{path} was not written by FitState.save")
    part = archive.getinfo(_FACTS)
    if part.file_size > _MOST_FACTS:
        raise ValueError("its facts are too long")
    facts = json.loads(read_part(archive, part))
    if not isinstance(facts, dict) or facts.get("kind") != _KIND:
        raise StateError(f"{path} was not written by FitState.save")
    version = facts.get("format")
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise StateError(
            f"{path} has format {version!r:.20}, written by leansvm {facts.get('leansvm')!r:.40}; "
            f"leansvm {__version__} reads formats up to {FORMAT}: make the state again, or use "
            f"the version that wrote it."
        )
    return facts


def _read_arrays(archive: zipfile.ZipFile) -> dict[str, NDArray[Any]]:
    """Read all arrays."""
    parts = {
        part.filename.removesuffix(".npy"): part
        for part in archive.infolist()
        if part.filename != _FACTS
    }
    unknown = parts.keys() - _ALWAYS - _SOMETIMES - _SUMS[0] - _SUMS[1]
    unknown = {name for name in unknown if not _MIXTURE.fullmatch(name)}
    if unknown or len(parts) < len(archive.infolist()) - 1:
        raise ValueError("it has unknown or duplicate parts")
    return {name: _array(name, read_part(archive, part)) for name, part in parts.items()}


def _array(name: str, content: bytes) -> NDArray[Any]:
    """Return an array in NumPy's format, of the type that this part has."""
    shape, by_columns, dtype, start = check_header(content, name)
    if name in _KINDS:
        known = dtype.kind in _KINDS[name]
    else:
        known = dtype.name in _TYPES.get(name, ("float64",))
    if not known or by_columns:
        raise ValueError(f"its {name} has type {dtype} and shape {shape}")
    array = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def _put_together(facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Build kernel, features and sums of their parts."""
    if not arrays.keys() >= _ALWAYS or not any(arrays.keys() >= kind for kind in _SUMS):
        raise ValueError("arrays are missing")
    n_features, clip = _whole(facts, "n_features"), arrays.get("clip")
    kernel = Kernel(
        _mixture(facts, arrays) if facts["kernel"] == Mixture.name else facts["kernel"],
        gamma=arrays.get("gamma", facts["gamma"]),
        degree=_number(facts, "degree"),
        coef0=_number(facts, "coef0"),
        clip=None if clip is None else tuple(clip),
    )
    if kernel.precomputed:
        raise ValueError("no state has a precomputed kernel")
    if np.any(~np.isfinite(kernel.gamma)) or np.any(np.asarray(kernel.gamma) < 0):
        raise ValueError("gamma must be finite and >= 0")
    penalty = np.inf if facts["bias_penalty"] is None else _number(facts, "bias_penalty")
    constant = 1.0 / math.sqrt(penalty) if 0 < penalty < np.inf else None
    points, kept = _points(arrays, n_features), arrays["kept"].astype(np.intp)
    factor = np.asfortranarray(arrays["L"], dtype=np.float64)
    features = KernelFeatures(kernel, points, factor, kept, constant)
    names, classes = arrays.get("names"), arrays.get("classes")
    if classes is not None and facts["text_labels"]:
        classes = classes.astype(object)
    fields = {
        "features": features,
        "sums": _sums(facts, arrays),
        "n_rows": _whole(facts, "n_rows"),
        "bias_penalty": penalty,
        "selected": arrays["selected"].astype(np.intp),
        "among": arrays["among"].astype(np.bool_) if "among" in arrays else None,
        "classes": classes,
        "class_weight": arrays.get("class_weight"),
        "feature_names": None if names is None else tuple(map(str, names.tolist())),
        "single_output": bool(facts["single_output"]),
        "version": facts["format"],
    }
    _check_shapes(fields, n_features)
    return fields


def _mixture(facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Mixture:
    numbers = {
        name.removeprefix("mixture-"): array
        for name, array in arrays.items()
        if name.startswith("mixture-")
    }
    return Mixture.from_numbers(facts["parts"], numbers)


def _points(arrays: dict[str, NDArray[Any]], n_features: int) -> Any:
    if "points" in arrays:
        return arrays["points"]
    parts = tuple(arrays[name] for name in ("data", "indices", "indptr"))
    points = sparse.csr_array(parts, shape=(len(parts[2]) - 1, n_features))
    points.check_format(full_check=True)
    return points


def _sums(facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Sums | FoldSums:
    n_outputs, count = _whole(facts, "n_outputs"), _number(facts, "count")
    if "gram" in arrays:
        return Sums(arrays["shift"], arrays["gram"], n_outputs, count)
    by_groups = bool(facts["by_groups"])
    return FoldSums(arrays["shift"], arrays["grams"], arrays["base"], n_outputs, count, by_groups)


def _check_shapes(fields: dict[str, Any], n_features: int) -> None:
    """Refuse arrays whose shapes do not match, and numbers that are not finite."""
    features, sums, selected = (fields[name] for name in ("features", "sums", "selected"))
    points, kept, columns = features.points, features.kept, features.width + sums.n_outputs
    size, square = points.shape[0], (columns + 1, columns + 1)
    folds = isinstance(sums, FoldSums)
    grams = (*sums.grams, sums.base) if folds else (sums.gram,)
    names, classes, weights = (fields[n] for n in ("feature_names", "classes", "class_weight"))
    outputs = None if classes is None else 1 if len(classes) == 2 else len(classes)
    stored = points.data if sparse.issparse(points) else points
    wrong = {
        "points": points.shape != (size, n_features) or not np.isfinite(stored).all(),
        "L": features.L.shape != (size, size) or not np.isfinite(features.L).all(),
        "kept": kept.shape != (size,) or len(set(kept.tolist())) < size or kept.min(initial=0) < 0,
        "selected": len(selected) <= kept.max(initial=-1) or selected.min(initial=0) < -1,
        "among": fields["among"] is not None and fields["among"].shape != (size,),
        "shift": sums.shift.shape != (columns,) or not np.isfinite(sums.shift).all(),
        "sums": any(G.shape != square or not np.isfinite(G).all() for G in grams),
        "names": names is not None and len(names) != n_features,
        "classes": outputs is not None and (outputs != sums.n_outputs or len(classes) < 2),
        "class_weight": weights is not None and (classes is None or len(weights) != len(classes)),
        "mixture": getattr(features.kernel.given, "n_features", n_features) != n_features,
        "gamma": np.ndim(features.kernel.gamma) == 1 and len(features.kernel.gamma) != n_features,
    }
    for name, bad in wrong.items():
        if bad:
            raise ValueError(f"its {name} does not match the other parts")
    for G in grams:
        rounding = 1e-9 * float(np.abs(G).max(initial=0.0))
        if np.abs(G - G.T).max(initial=0.0) > rounding or G.diagonal().min(initial=0.0) < -rounding:
            raise ValueError("its sums are not symmetric, or negative")


def _whole(facts: dict[str, Any], name: str) -> int:
    if type(facts[name]) is not int or facts[name] < 0:
        raise ValueError(f"{name} must be a whole number >= 0")
    return int(facts[name])


def _number(facts: dict[str, Any], name: str) -> float:
    if type(facts[name]) not in (int, float) or not math.isfinite(facts[name]):
        raise ValueError(f"{name} must be a finite number")
    return facts[name]  # an int stays one: degree=3
