"""Downloads against a server on this machine: resuming, retrying, refusing what is wrong."""

import bz2
import gzip
import hashlib
import http.server
import shutil
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from leansvm.datasets import DownloadError, LabelledData, _sources, download, load, names
from leansvm.datasets._catalogue import CATALOGUE, Entry
from leansvm.datasets._convert import compact, idx, raetsch, svmlight, text_table
from leansvm.datasets._download import CHUNK, fetch
from leansvm.datasets._lzw import unpack_lzw

pytest.importorskip("pooch")

CONTENT = bytes(np.random.default_rng(0).integers(256, size=300_000, dtype=np.uint8))
SHA = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; `faults` is a list of what to do wrong, one per request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.faults, self.requests, self.ranges = {}, [], [], True
        self.says_how_much = True
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        fault = server.faults.pop(0) if server.faults else None
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        server.requests.append(start)
        content = server.files.get(self.path.rsplit("/", 1)[1])
        if content is None or isinstance(fault, int):
            self.send_error(fault or 404)
            return
        if not server.ranges:
            start = 0
        elif start >= len(content):
            self.send_error(416)
            return
        if fault == "corrupt":
            content = content[:100] + bytes([content[100] ^ 1]) + content[101:]
        part = content[start:]
        self.send_response(206 if start else 200)
        if server.says_how_much:
            self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part[: len(part) // 3] if fault == "truncate" else part)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)  # before it asks again
    server = Server()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    server.files["data.bin"] = CONTENT
    yield server
    server.shutdown()
    server.server_close()


def get(server, tmp_path, name="data.bin", **options):
    return fetch(f"{server.url}/{name}", tmp_path / name, **{"timeout": 5.0, **options})


def test_a_file_is_fetched_once(server, tmp_path):
    seen = []
    assert get(server, tmp_path, sha256=SHA, progress=lambda *now: seen.append(now)) == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT)) and len(seen) > 1
    assert get(server, tmp_path, sha256=SHA) == CONTENT
    assert server.requests == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


def test_truncated_transfers_are_continued(server, tmp_path):
    server.faults = ["truncate", "truncate"]
    assert get(server, tmp_path, sha256=SHA) == CONTENT
    first, second, last = server.requests
    assert first == 0 and len(CONTENT) // 3 - CHUNK < second <= len(CONTENT) // 3
    left = (len(CONTENT) - second) // 3
    assert second + left - CHUNK < last <= second + left  # an incomplete block is asked for again


def test_an_interrupted_download_is_continued_by_the_next_run(server, tmp_path):
    (tmp_path / "data.bin.partial").write_bytes(CONTENT[:1000])
    assert get(server, tmp_path, sha256=SHA) == CONTENT
    assert server.requests == [1000]


def test_server_that_cannot_continue_sends_all(server, tmp_path):
    server.ranges = False
    (tmp_path / "data.bin.partial").write_bytes(b"x" * 1000)
    assert get(server, tmp_path, sha256=SHA) == CONTENT


def test_complete_but_unnamed_part_starts_anew(server, tmp_path):
    (tmp_path / "data.bin.partial").write_bytes(CONTENT)
    assert get(server, tmp_path, sha256=SHA) == CONTENT
    assert server.requests == [len(CONTENT), 0]


def test_a_wrong_beginning_is_thrown_away(server, tmp_path):
    (tmp_path / "data.bin.partial").write_bytes(b"x" * 1000)
    assert get(server, tmp_path, sha256=SHA) == CONTENT
    assert server.requests == [1000, 0]


def test_a_corrupt_transfer_is_repeated(server, tmp_path):
    server.faults = ["corrupt"]
    assert get(server, tmp_path, sha256=SHA) == CONTENT
    assert server.requests == [0, 0]


def test_wrong_checksum_is_refused(server, tmp_path):
    with pytest.raises(DownloadError, match=f"2 attempts: its checksum is {SHA}, not 00"):
        get(server, tmp_path, sha256="00", attempts=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_packed_files_are_unpacked_and_checked(server, tmp_path, suffix, pack):
    name, packed = f"data{suffix}", pack(CONTENT)
    server.files[name] = packed
    server.faults = ["truncate"]
    assert get(server, tmp_path, name, sha256=SHA) == CONTENT
    server.files[name] = packed[:-100]  # complete for the server, but cut when it was made
    (tmp_path / name).unlink()
    with pytest.raises(DownloadError, match="the file is damaged"):
        get(server, tmp_path, name, attempts=2)


def test_busy_server_is_asked_again(server, tmp_path):
    server.faults = [503, 429]
    assert get(server, tmp_path) == CONTENT
    server.faults = [500] * 3
    with pytest.raises(DownloadError, match="in 3 attempts: the server answered 500"):
        get(server, tmp_path / "..", attempts=3)


@pytest.mark.parametrize("code", [404, 403])
def test_missing_file_is_not_asked_for_again(server, tmp_path, code):
    server.faults = [code]
    with pytest.raises(DownloadError, match=f"the server answered {code}"):
        get(server, tmp_path, "none")
    assert len(server.requests) == 1


def test_a_file_damaged_since_is_fetched_again(server, tmp_path):
    (tmp_path / "data.bin").write_bytes(CONTENT[:-1])
    assert get(server, tmp_path, sha256=SHA) == CONTENT
    assert server.requests == [0]


def test_pooch_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"a download needs pooch: run .pip install '\.\[cli\]'"):
        fetch("http://127.0.0.1:9/x", tmp_path / "x")


def test_no_network_is_said(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(DownloadError, match=r"2 attempts: no connection \(.*refused"):
        get(server, tmp_path, attempts=2)


def test_silent_server_is_given_up(tmp_path, monkeypatch):
    import socket

    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(DownloadError, match=r"2 attempts: no connection \(.*timed out"):
            fetch(url, tmp_path / "x", attempts=2, timeout=0.05)


# ---------------------------------------------------------------------------- too much


def peak_of(function):
    """Most bytes that Python held during a call."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def compress_bomb(n_codes):
    """Unix compress: every code is the word before and one more letter."""
    codes = [97, *range(257, 257 + n_codes)]
    out, width, group = bytearray(b"\x1f\x9d\x90"), 9, []
    for free, code in enumerate(codes, 257):
        group.append(code)
        if len(group) == 8 or free == 1 << width:
            bits = sum(c << (width * i) for i, c in enumerate(group))
            out += bits.to_bytes(width, "little")
            group.clear()
        width += free == 1 << width
    return bytes(out)


BOMBS = {  # packed in their tests: it takes a second
    "data.bz2": lambda: bz2.compress(bytes(2**26)),
    "data.gz": lambda: gzip.compress(bytes(2**26), 1),
    "data.Z": lambda: compress_bomb(12_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_neither_unpacked_nor_kept(server, tmp_path, name):
    server.files[name] = bomb = BOMBS[name]()

    def refused():
        with pytest.raises(DownloadError, match=r"unpacks to more than .* nothing of it was kept"):
            get(server, tmp_path, name)

    assert peak_of(refused) < 4 * (100 * len(bomb) + 2**21)
    assert len(server.requests) == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("says_how_much", [True, False])
def test_a_file_that_is_too_large_is_neither_fetched_nor_kept(server, tmp_path, says_how_much):
    server.says_how_much = says_how_much
    seen = []
    with pytest.raises(DownloadError, match=r"has more than 150,000 bytes; nothing"):
        get(server, tmp_path, max_bytes=150_000, progress=lambda have, total: seen.append(have))
    assert not list(tmp_path.iterdir())
    assert max(seen, default=0) <= 150_000 * (not says_how_much)


# ---------------------------------------------------------------------------- whole sets


TEXT = [b"+1 1:0.5 3:2\n-1 2:1\n", b"-1 3:4\n"]


@pytest.fixture
def tiny(server, tmp_path, monkeypatch):
    """A set of two files that the catalogue knows."""
    monkeypatch.setitem(CATALOGUE, "tiny", Entry(2, 1, 3, "", ""))
    files = _sources.Files(("http://nowhere/tiny.bz2", "http://nowhere/tiny.t"), svmlight(3))
    monkeypatch.setitem(_sources.SOURCES, "tiny", files)
    monkeypatch.setitem(_sources.CLASS_SIZES, "tiny", (1, 1))
    server.files.update({"tiny.bz2": bz2.compress(TEXT[0]), "tiny.t": TEXT[1]})
    X, y = np.array([[0.5, 0, 2], [0, 1, 0]]), np.array([1, -1])
    monkeypatch.setitem(_sources.CONTENT, "tiny", (_sources.digest(X, y), None))
    return lambda **options: download("tiny", data_home=tmp_path, mirror=server.url, **options)


def test_a_set_is_fetched_converted_and_stored(tiny, tmp_path):
    path = tiny()
    assert path == tmp_path / "tiny" / "tiny.npz"
    data = load("tiny", data_home=tmp_path)
    assert_array_equal(data.X_train, [[0.5, 0, 2], [0, 1, 0]])
    assert_array_equal(data.y_train, [1, -1])
    assert_array_equal(data.X_test, [[0, 0, 4]])
    assert [item.name for item in path.parent.iterdir()] == ["tiny.npz"]


def test_complete_files_survive_a_failure(tiny, server, tmp_path):
    text = server.files.pop("tiny.t")
    with pytest.raises(DownloadError) as caught:
        tiny()
    message = str(caught.value)
    assert "404" in message and str(tmp_path) in message and "LEANSVM_DATA" in message
    server.files["tiny.t"] = text
    server.requests.clear()
    tiny()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"+1 1:0.25 3:2\n-1 2:1\n", "another checksum"),
        (b"+1 1:0.5 3:2\n", "not (2, 1, 3)"),
        (b"+1 nonsense\n", "could not be read"),
        (b"+1\n" * 500_000, "unpacks to more than"),
    ],
)
def test_other_rows_are_refused(tiny, server, tmp_path, text, problem):
    server.files["tiny.bz2"] = bz2.compress(text)
    with pytest.raises(DownloadError) as caught:
        tiny()
    assert problem in str(caught.value)
    assert not (tmp_path / "tiny" / "tiny.npz").exists()
    assert not (tmp_path / "tiny" / "download").exists()


def test_other_rows_are_taken_on_request(tiny, server):
    server.files["tiny.bz2"] = bz2.compress(b"+1 1:0.25 3:2\n-1 2:1\n")
    tiny(verify=False)


def test_every_set_of_the_catalogue_has_a_source_and_a_check():
    assert set(_sources.SOURCES) == set(names())
    assert set(_sources.CLASS_SIZES) == set(names()) - {"vehicle"}
    for name, sizes in _sources.CLASS_SIZES.items():
        assert sum(sizes) == CATALOGUE[name].n_rows, name
    assert all(url.startswith("https://") for s in _sources.SOURCES.values() for url in s.urls)


def test_checksum_of_rows_ignores_how_they_are_stored():
    from scipy.sparse import csr_array

    X, y = np.array([[0, 2], [3, 0]], dtype=np.uint8), np.array([1, -1])
    dense = _sources.digest(X, y)
    assert dense == _sources.digest(X.astype(np.float64) * 1.0, y.astype(np.int8))
    assert dense != _sources.digest(X, -y) and dense != _sources.digest(X + 1, y)
    sparse = _sources.digest(csr_array(X.astype(np.float32)), y)
    assert sparse == _sources.digest(csr_array(X.astype(np.float64)), y)


def openml_bunch(**options):
    from sklearn.utils import Bunch

    nan = np.nan
    X = np.array([[1.0, 0, 0, 5], [nan, 1, 2, 5], [3.0, 1, nan, 5], [2.0, nan, 2, 5]])
    return Bunch(
        data=X,
        feature_names=["size", "sex", "kind", "same"],
        categories={"sex": ["f", "m"], "kind": ["a", "b", "c"]},
        target=np.array(["yes", "no", "no", "yes"], dtype=object),
    )


def test_openml_attributes_become_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("sklearn.datasets.fetch_openml", openml_bunch)
    monkeypatch.setitem(CATALOGUE, "small", Entry(4, 0, 3, "", ""))
    monkeypatch.setitem(_sources.SOURCES, "small", _sources._openml(1, ("no", "yes")))
    download("small", data_home=tmp_path)
    data = load("small", data_home=tmp_path)
    assert data.feature_names == ("size", "sex=m", "kind=c")
    assert_array_equal(data.X_train, [[1, 0, 0], [2, 1, 1], [3, 1, 1], [2, 1, 1]])
    assert data.class_names == ("no", "yes")
    assert_array_equal(data.y_train, [1, 0, 0, 1])
    with pytest.raises(DownloadError, match="cannot use a mirror"):
        download("small", data_home=tmp_path, mirror="http://nowhere")
    monkeypatch.setitem(_sources.SOURCES, "small", _sources._openml(1, ("no", "maybe")))
    with pytest.raises(DownloadError, match="unexpected classes"):
        download("small", data_home=tmp_path)


def test_openml_without_network(tmp_path, monkeypatch):
    from urllib.error import URLError

    def unreachable(**options):
        raise URLError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", unreachable)
    with pytest.raises(DownloadError, match=r"uci-vote could not be fetched: .*no route to host"):
        download("uci-vote", data_home=tmp_path)


def test_covtype_keeps_its_names(tmp_path, monkeypatch):
    from sklearn.utils import Bunch

    names = ["Elevation", "Wilderness_Area_0", "Soil_Type_3"]
    X = np.array([[2596.0, 1, 0], [-3, 0, 1]])
    bunch = Bunch(data=X, target=np.array([5, 2]), feature_names=names)
    monkeypatch.setattr("sklearn.datasets.fetch_covtype", lambda **options: bunch)
    download("covtype", data_home=tmp_path, verify=False)
    data = load("covtype", data_home=tmp_path, dtype=None)
    assert data.X_train.dtype == np.int16
    assert_array_equal(data.X_train, X)


# ---------------------------------------------------------------------------- formats


def test_svmlight_parts_and_labels():
    data = svmlight(3, n_train=2, label_shift=-1)("d", [TEXT[0], TEXT[1], TEXT[1]])
    assert data.X_train.shape == (3, 3) and data.X_test.shape == (1, 3)
    assert_array_equal(data.y_train, [0, -2, -2])
    sparse = svmlight(3, sparse=True)("d", TEXT)
    assert_array_equal(sparse.X_train.toarray(), [[0.5, 0, 2], [0, 1, 0]])


def test_rows_of_a_label_alone_are_not_made_dense():
    with pytest.raises(ValueError, match=r"2,000 rows of 7,129 features in 4,000 bytes"):
        svmlight(7129)("d", [b"1\n" * 2000])


def test_idx():
    images = b"\0\0\x08\x03" + np.array([2, 1, 3], ">u4").tobytes() + bytes(range(6))
    labels = b"\0\0\x08\x01" + np.array([2], ">u4").tobytes() + bytes([7, 8])
    data = idx("d", [images, labels, images, labels])
    assert_array_equal(data.X_train, [[0, 1, 2], [3, 4, 5]])
    assert_array_equal(data.y_test, [7, 8])


def test_text_table():
    data = text_table(skip_rows=1, names=("a", "b"))("d", [b"a b y\n1 2 1\n3 4 0\n"] * 2)
    assert_array_equal(data.X_train, [[1, 2], [3, 4]])
    assert_array_equal(data.y_test, [1, 0])
    assert data.feature_names == ("a", "b")


def test_raetsch():
    import io

    from scipy.io import savemat

    buffer = io.BytesIO()
    one = {"x": np.eye(3), "t": np.array([[1], [-1], [1]])}
    one |= {"train": np.array([[1, 1], [2, 3]]), "test": np.array([[3], [1]])}
    savemat(buffer, {"toy": one})
    data = raetsch("ida-toy", [buffer.getvalue()])
    assert_array_equal(data.split(0)[0], np.eye(3)[[0, 0]])
    assert_array_equal(data.split(1)[3], [1])
    assert isinstance(data, LabelledData)


def test_compact_keeps_every_value():
    for X, kind in (
        ([[0.0, 255]], np.uint8),
        ([[-1.0, 255]], np.int16),
        ([[0.5, 1]], float),
        ([[70000.0, 1]], float),
    ):
        assert compact(np.array(X)).dtype == kind
        assert_array_equal(compact(np.array(X)), X)


def pack_lzw(data, largest=12):
    """Unix compress: codes of growing width in groups of eight, cleared when the table is full."""
    out, group = bytearray(b"\x1f\x9d" + bytes([0x80 | largest])), []
    width, words = 9, {bytes([value]): value for value in range(256)}

    def flush(size=None):
        bits = sum(code << (width * place) for place, code in enumerate(group))
        out.extend(bits.to_bytes(width * bool(group) if size is None else size, "little"))
        group.clear()

    def emit(code):
        group.append(code)
        if len(group) == 8:
            flush()

    word, free = b"", 257
    for value in data:
        longer = word + bytes([value])
        if longer in words:
            word = longer
            continue
        emit(words[word])
        if free < 1 << largest:
            words[longer] = free
            free += 1
            if free > (1 << width) and width < largest:
                flush()
                width += 1
        else:
            emit(256)
            flush()
            width, free = 9, 257
            words = {bytes([value]): value for value in range(256)}
        word = bytes([value])
    emit(words[word])
    flush((len(group) * width + 7) // 8)
    return bytes(out)


@pytest.mark.parametrize("largest", [12, 16])
def test_unix_compress(tmp_path, largest):
    rng = np.random.default_rng(0)
    text = b"".join(b"%d %d %d\n" % tuple(rng.integers(-50, 90, 3)) for _ in range(20_000))
    packed = pack_lzw(text, largest)
    if shutil.which("gzip"):  # it reads these files: our packing is theirs
        (tmp_path / "x.Z").write_bytes(packed)
        read = subprocess.run(["gzip", "-dc", str(tmp_path / "x.Z")], capture_output=True)
        assert read.stdout == text
    assert unpack_lzw(packed) == text
    assert unpack_lzw(pack_lzw(b"a" * 17)) == b"a" * 17


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a .Z file"),
        (b"\x1f\x8b123", "not a .Z file"),
        (b"\x1f\x9d\x88", "codes of 8 bits"),
        (b"\x1f\x9d\x90\xff\xff", "not defined"),
    ],
)
def test_damaged_compress_file(data, problem):
    with pytest.raises(ValueError, match=problem):
        unpack_lzw(data)
