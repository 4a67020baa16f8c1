"""Compiled loops where nothing can be written: neither the package's folder nor the user's."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import leansvm
from leansvm._compile import uncompiled
from leansvm.kernels import Kernel

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1
READ_ONLY = "import os; assert not os.access(os.path.dirname(leansvm.__file__), os.W_OK); "
ONE_LOOP = (
    "import leansvm; "
    + READ_ONLY
    + "import numpy as np; from leansvm.dual._ldl_swap import drop_by_swaps; "
    "D = np.ones(3); drop_by_swaps(np.eye(3), D, 3, 0); print(drop_by_swaps.stats.cache_path)"
)
ALL_LOOPS = (
    "import leansvm as l; import numpy as np; r = np.random.default_rng(0); "
    "X = r.normal(size=(60, 3)); y = X[:, 0] > 0; l.L2SVC().fit(X, y); "
    "l.LSSVC(solver='smo').fit(X, y); l.LowRankLSSVC(n_basis=2).fit(X, y); "
    "[l.SparseLSSVC(n_basis=9, basis=b, gamma=1.0, kernel=k).fit(X, y)"
    " for k in ('rbf', 'laplacian')"
    " for b in ('medoids', 'entropy', 'backfitting', 'pivoted-cholesky')]; print('fitted')"
)


def _obey_modes():
    """Let root find a folder read-only that is: take away the right to ignore modes."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0):
        os._exit(77)


@pytest.fixture
def locked(tmp_path):
    """A copy of the package and a home that cannot be written; returns what runs Python there."""
    if not sys.platform.startswith("linux"):
        pytest.skip("needs Linux to give up root's rights")
    package = tmp_path / "site" / "leansvm"
    shutil.copytree(Path(leansvm.__file__).parent, package, ignore=shutil.ignore_patterns("*.nb?"))
    home = tmp_path / "home"
    home.mkdir()
    folders = [home, package, *(path for path in package.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    home_variables = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    variables = {**os.environ, **home_variables, "PYTHONPATH": str(package.parent)}
    variables.pop("NUMBA_CACHE_DIR", None)

    def run(code):
        return subprocess.run(
            [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
            env=variables, cwd=tmp_path, preexec_fn=_obey_modes, capture_output=True, text=True,
        )  # fmt: skip

    yield run
    for folder in folders:
        folder.chmod(0o755)


@pytest.mark.parametrize(
    ("code", "printed"),
    [(ONE_LOOP, "None\n"), pytest.param(ALL_LOOPS, "fitted\n", marks=pytest.mark.slow)],
    ids=["one loop", "all loops"],
)
def test_loops_compile_where_nothing_can_be_written(locked, code, printed):
    done = locked(code)
    if done.returncode == 77:
        pytest.skip("root cannot give up its rights here")
    notice = "solver='smo' is compiled for its first use, which takes some ten seconds\n"
    assert (done.returncode, done.stdout) == (0, printed)
    assert done.stderr == ("" if code == ONE_LOOP else notice)


def test_loops_are_kept_where_a_folder_can_be_written():
    from leansvm.dual._ldl_swap import drop_by_swaps

    assert drop_by_swaps.stats.cache_path is not None


@pytest.mark.slow
def test_a_long_compilation_is_announced_once(tmp_path):
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    variables["PYTHONPATH"] = str(Path(leansvm.__file__).parents[1])
    code = (
        "from leansvm.dual._smo_kernels import run_on_matrix as f; from pathlib import Path; "
        "folder = Path(f.stats.cache_path); folder.mkdir(parents=True, exist_ok=True); "
        "(folder / '_smo_kernels.run_on_matrix-1.py311.nbi').touch()"
    )
    run = [sys.executable, "-c", code]
    first = subprocess.run(run, env=variables, capture_output=True, text=True, check=True)
    assert "solver='smo' is compiled for its first use" in first.stderr
    assert "later runs find it ready" in first.stderr
    again = subprocess.run(run, env=variables, capture_output=True, text=True, check=True)
    assert again.stderr == ""


def test_numba_is_used_through_one_module():
    package = Path(leansvm.__file__).parent
    users = [path for path in package.rglob("*.py") if "numba import" in path.read_text("utf-8")]
    assert [path.name for path in users] == ["_compile.py"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52", "laplacian"])
def test_kernels_without_compiled_loops(name, dtype):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(40, 5)).astype(dtype), rng.normal(size=(7, 5)).astype(dtype)
    kernel = Kernel(name, gamma=np.array([0.1, 0.0, 2.0, 0.5, 1.0]))
    fast = kernel.block(X, Z)
    with uncompiled():
        slow = kernel.block(X, Z)
    assert_allclose(slow, fast, rtol=1e-13 if dtype is np.float64 else 1e-5)
    with uncompiled(False):
        assert_array_equal(kernel.block(X, Z), fast)
