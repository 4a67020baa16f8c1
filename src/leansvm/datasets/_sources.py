"""Where each data set comes from, how its files are read, and how the result is checked.

A checksum of the rows decides, because it does not depend on how a file is packed or laid out. If
it is not known, the checksum of the file or the sizes of the classes are compared.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from leansvm.datasets import _convert
from leansvm.datasets._catalogue import CATALOGUE, check_name
from leansvm.datasets._download import MOST_BYTES, DownloadError, Progress, fetch
from leansvm.datasets._files import VARIABLE, cache_folder, save
from leansvm.datasets._set import LabelledData

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
RAETSCH = "https://github.com/tdiethe/gunnar_raetsch_benchmark_datasets/raw/master/benchmarks.mat"
RIPLEY = "https://www.stats.ox.ac.uk/pub/PRNN"


@dataclass(frozen=True)
class Files:
    """Files to fetch, each with the SHA-256 of its unpacked content if it is known."""

    urls: tuple[str, ...]
    convert: _convert.Converter
    sha256: tuple[str | None, ...] = ()

    def obtain(
        self, name: str, folder: Path, mirror: str | None, progress: Progress | None
    ) -> LabelledData:
        """Fetch the files into `folder` and convert them."""
        contents = []
        hashes = self.sha256 or (None,) * len(self.urls)
        for url, sha256 in zip(self.urls, hashes, strict=True):
            file_name = url.rsplit("/", 1)[1]
            place = f"{mirror.rstrip('/')}/{file_name}" if mirror else url
            most = MOST_BYTES if sha256 else _most_bytes(name)
            contents.append(
                fetch(place, folder / file_name, sha256=sha256, max_bytes=most, progress=progress)
            )
        try:
            return self.convert(name, contents)
        except (ValueError, KeyError, IndexError, EOFError) as error:
            shutil.rmtree(folder)  # or the same files would be read the next time
            raise DownloadError(f"the files of {name} could not be read: {error}") from error


def _most_bytes(name: str) -> int:
    """Return the size that a file of a set has at most: as text, with every value written out."""
    entry = CATALOGUE[name]
    return 2**20 + 2 * (entry.n_rows + entry.n_test) * (24 * entry.n_features + 16)


@dataclass(frozen=True)
class Fetcher:
    """A set that scikit-learn fetches (and checks) itself."""

    fetch: Callable[[str, Path], LabelledData]
    urls: tuple[str, ...] = ()

    def obtain(
        self, name: str, folder: Path, mirror: str | None, progress: Progress | None
    ) -> LabelledData:
        """Let scikit-learn fetch the set into `folder` and convert it."""
        if mirror:
            raise DownloadError(f"{name} is downloaded by scikit-learn, which cannot use a mirror")
        try:
            return self.fetch(name, folder)
        except OSError as error:
            raise DownloadError(f"{name} could not be fetched: {error}") from error


def _openml(data_id: int, class_names: tuple[str, ...]) -> Fetcher:
    def get(name: str, folder: Path) -> LabelledData:
        from sklearn.datasets import fetch_openml

        bunch = fetch_openml(
            data_id=data_id, as_frame=False, parser="liac-arff", data_home=str(folder)
        )
        unknown = sorted({str(value) for value in bunch.target} - set(class_names))
        if unknown:
            raise DownloadError(f"{name}: the data set at OpenML has unexpected classes, {unknown}")
        X = np.asarray(bunch.data, dtype=np.float64)
        return _convert.attributes(
            name, X, bunch.feature_names, bunch.categories, bunch.target, class_names
        )

    return Fetcher(get, (f"https://www.openml.org/d/{data_id}",))


def _covtype(name: str, folder: Path) -> LabelledData:
    from sklearn.datasets import fetch_covtype

    bunch = fetch_covtype(data_home=str(folder))
    names = tuple(text.replace("_Area_", "_Area").replace("_Type_", "_Type") for text in
                  bunch.feature_names)  # fmt: skip
    labels = bunch.target.astype(np.uint8)
    return LabelledData(name, _convert.compact(bunch.data), labels, feature_names=names)


def _libsvm(*files: str, **options: Any) -> Files:
    return Files(tuple(f"{LIBSVM}/{file}" for file in files), _convert.svmlight(**options))


_SHUTTLE_CLASSES = (
    "Rad.Flow", "Fpv.Close", "Fpv.Open", "High", "Bypass", "Bpv.Close", "Bpv.Open",
)  # fmt: skip

SOURCES: dict[str, Files | Fetcher] = {
    "a1a": _libsvm("binary/a1a", "binary/a1a.t", n_features=123, sparse=True),
    "a9a": _libsvm("binary/a9a", "binary/a9a.t", n_features=123, sparse=True),
    "w1a": _libsvm("binary/w1a", "binary/w1a.t", n_features=300, sparse=True),
    "ijcnn1": _libsvm(
        "binary/ijcnn1.tr.bz2",
        "binary/ijcnn1.val.bz2",
        "binary/ijcnn1.t.bz2",
        n_features=22,
        n_train=2,
    ),
    "colon-cancer": _libsvm("binary/colon-cancer.bz2", n_features=2000),
    "leukemia": _libsvm("binary/leu.bz2", "binary/leu.t.bz2", n_features=7129),
    "splice": _libsvm("binary/splice", "binary/splice.t", n_features=60),
    "usps": _libsvm("multiclass/usps.bz2", "multiclass/usps.t.bz2", n_features=256, label_shift=-1),
    "vehicle": _libsvm(
        "multiclass/vehicle/combined_scale.bz2",
        "multiclass/vehicle/combined_scale.t.bz2",
        n_features=100,
    ),
    "mnist": Files(
        tuple(
            f"{MNIST}/{part}-{what}-ubyte.gz"
            for part in ("train", "t10k")
            for what in ("images-idx3", "labels-idx1")
        ),
        _convert.idx,
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    "shuttle": Files(
        (f"{UCI}/statlog/shuttle/shuttle.trn.Z", f"{UCI}/statlog/shuttle/shuttle.tst"),
        _convert.text_table(classes=_SHUTTLE_CLASSES),
    ),
    "synth": Files(
        (f"{RIPLEY}/synth.tr", f"{RIPLEY}/synth.te"),
        _convert.text_table(skip_rows=1, names=("xs", "ys")),
    ),
    **{
        f"ida-{name}": Files(
            (RAETSCH,),
            _convert.raetsch,
            ("47c19e4bc4716edc4077cfa5ea61edf4d02af4ec51a0ecfe035626ae8b561c75",),
        )
        for name in ("diabetis", "german", "titanic")
    },
    "covtype": Fetcher(_covtype, (f"{UCI}/covtype/covtype.data.gz",)),
    "uci-breast-cancer": _openml(13, ("no-recurrence-events", "recurrence-events")),
    "uci-breast-w": _openml(15, ("benign", "malignant")),
    "uci-credit-g": _openml(31, ("good", "bad")),
    "uci-diabetes": _openml(37, ("tested_negative", "tested_positive")),
    "uci-heart-c": _openml(49, ("<50", ">50_1")),
    "uci-heart-h": _openml(51, ("<50", ">50_1")),
    "uci-heart-statlog": _openml(53, ("absent", "present")),
    "uci-hepatitis": _openml(55, ("DIE", "LIVE")),
    "uci-ionosphere": _openml(59, ("b", "g")),
    "uci-kr-vs-kp": _openml(3, ("won", "nowin")),
    "uci-mushroom": _openml(24, ("e", "p")),
    "uci-sick": _openml(38, ("negative", "sick")),
    "uci-sonar": _openml(40, ("Rock", "Mine")),
    "uci-vote": _openml(56, ("democrat", "republican")),
}

# SHA-256 (see :func:`digest`) of the rows to train and to test.
CONTENT: dict[str, tuple[str, str | None]] = {
    "a1a": (
        "73f4cddcfa280c5985e589f596c6180a794e0e858e092dd0e4b46718a6c2870d",
        "c6c801f32ab2fe0845d8c6d95cc6b8d4b406a575a252495191c7e6704baab6c6",
    ),
    "a9a": (
        "1ac198a278aebd61eb4801089e442c99e22cd27b129cc7e132c4f7dec88dd6c8",
        "bac11794ab4f10517767ee6d26fea0bff3c0e2ef5fbdcdaa58be10e5ada56e65",
    ),
    "colon-cancer": (
        "c56c796bd163cdd2876e9bb4a1e391bee27e593cc30c86f4ae69c91aef1d5f33",
        None,
    ),
    "covtype": (
        "1b5cc8e7cf30ea074f964a9bdf2e773b76311a27a697455a33aaaada95d8a9be",
        None,
    ),
    "ijcnn1": (
        "548970a6b489bb00dc2fa0ec6b145cabc7bf8ead1536a84a6d6b906906eac8fd",
        "5bac24709dfe02b21bfb12322e81ca875b8fec9863ce86137199fc6798ab0c37",
    ),
    "shuttle": (
        "267ce78d0c30044f71fdec1f5489d88d713b2017fb9df5ae57e81a315e2fa770",
        "e0e06cb9307f02fb216d507f69b20b15c823e7ffec2297693bbf97cbd17306a4",
    ),
    "splice": (
        "50bb9500b7ce1cdcefceb8dbabe9c375f66c9a5fd20e1366a19355fe72b23969",
        "ff619ad24e294b3c7276d826ca461338a4dc593700ac0d3ef25723c58464b3aa",
    ),
    "leukemia": (
        "9e1aa38a3f7ad857962adadfcebc38ab8f39e6da9078c7cf7eed3b3292bb61c2",
        None,
    ),
    "w1a": (
        "c7f35d17fe0fb27968650f71dad6082f31b8f4f2ef6c3391d3cdf48cff440f90",
        None,
    ),
}

# Rows of each class to train, in the order of the labels.
CLASS_SIZES: dict[str, tuple[int, ...]] = {
    "a1a": (1210, 395),
    "a9a": (24720, 7841),
    "colon-cancer": (40, 22),
    "covtype": (211840, 283301, 35754, 2747, 9493, 17367, 20510),
    "ida-diabetis": (500, 268),
    "ida-german": (700, 300),
    "ida-titanic": (10, 14),
    "ijcnn1": (45137, 4853),
    "leukemia": (11, 27),
    "mnist": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    "shuttle": (34108, 37, 132, 6748, 2458, 6, 11),
    "splice": (483, 517),
    "synth": (125, 125),
    "uci-breast-cancer": (201, 85),
    "uci-breast-w": (458, 241),
    "uci-credit-g": (700, 300),
    "uci-diabetes": (500, 268),
    "uci-heart-c": (165, 138),
    "uci-heart-h": (188, 106),
    "uci-heart-statlog": (150, 120),
    "uci-hepatitis": (32, 123),
    "uci-ionosphere": (126, 225),
    "uci-kr-vs-kp": (1669, 1527),
    "uci-mushroom": (4208, 3916),
    "uci-sick": (3541, 231),
    "uci-sonar": (97, 111),
    "uci-vote": (267, 168),
    "usps": (1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644),
    "w1a": (2405, 72),
}


def download(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    mirror: str | None = None,
    verify: bool = True,
    progress: Progress | None = None,
) -> Path:
    """Fetch a data set from its original public source and store it for :func:`load`.

    What was fetched before an interruption is not fetched again.

    Parameters
    ----------
    name : str
        A name of the catalogue (:func:`names`).
    data_home : path-like, default=None
        Folder to store it in; None: the per-user cache.
    mirror : str, default=None
        Download the files from this address instead: ``<mirror>/<file name>``.
    verify : bool, default=True
        Refuse rows that differ from those with which the papers' tables were computed.
    progress : callable, default=None
        Called with the bytes of the current file so far, and in all if known.

    Returns
    -------
    Path
        The file that :func:`load` reads.

    Raises
    ------
    DownloadError
        No connection, a file that stays damaged, or rows that are not the known ones.
    """
    check_name(name)
    home = cache_folder() if data_home is None else Path(data_home).expanduser()
    folder = home / name / "download"
    folder.mkdir(parents=True, exist_ok=True)
    source = SOURCES[name]
    try:
        data = source.obtain(name, folder, mirror, progress)
    except DownloadError as error:
        if folder.is_dir() and not any(folder.iterdir()):
            shutil.rmtree(folder)
        raise DownloadError(f"{error}\n{_way_out(name, home, source)}") from error
    if verify and (problem := differs(data)):
        shutil.rmtree(folder)
        raise DownloadError(
            f"{name}: {problem}; the source may have changed. Nothing was stored; "
            f"verify=False (--no-verify) stores it without this check"
        )
    path = home / name / f"{name}.npz"
    save(data, path)
    shutil.rmtree(folder)
    return path


def _way_out(name: str, home: Path, source: Files | Fetcher) -> str:
    sources = " and ".join(source.urls)
    return (
        f"Try again later (complete files are kept), or copy {name}.npz from another machine to "
        f"{home / name} or to a folder that {VARIABLE} names. Source: {sources}"
    )


def differs(data: LabelledData) -> str:
    """Say how a data set differs from what is known about it; "" if it does not differ."""
    entry = CATALOGUE[data.name]
    n_test = 0 if data.X_test is None else data.X_test.shape[0]
    found = (data.X_train.shape[0], n_test, data.X_train.shape[1])
    expected = (entry.n_rows, entry.n_test, entry.n_features)
    if found != expected:
        return f"it has {found} rows to train, rows to test and features, not {expected}"
    known = CONTENT.get(data.name, (None, None))
    parts = ((data.X_train, data.y_train), (data.X_test, data.y_test))
    for (X, y), expected_digest in zip(parts, known, strict=True):
        if y is not None and expected_digest not in (None, digest(X, y)):
            return "its rows have another checksum than those known"
    counts = tuple(int(count) for count in np.unique(data.y_train, return_counts=True)[1])
    if counts != CLASS_SIZES.get(data.name, counts):
        return f"its classes have {counts} rows, not {CLASS_SIZES[data.name]}"
    return ""


def digest(X: Any, y: np.ndarray) -> str:
    """Return the SHA-256 of rows and labels, whatever types they are stored in."""
    state = hashlib.sha256(f"{X.shape}".encode())
    if isinstance(X, np.ndarray):
        for start in range(0, len(X), 10_000):
            state.update((X[start : start + 10_000].astype("<f8") + 0.0).tobytes())
    else:
        X = X.sorted_indices()
        for values, kind in ((X.indptr, "<i8"), (X.indices, "<i8"), (X.data, "<f8")):
            state.update(values.astype(kind).tobytes())
    state.update(y.astype("<i8").tobytes())
    return state.hexdigest()
