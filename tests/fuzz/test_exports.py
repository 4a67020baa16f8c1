"""Random models as C, JavaScript and ONNX give the values that they have in Python."""

import shutil
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import strategies as st

import leansvm
from leansvm.export import check, to_c, to_js, to_onnx
from tests.fuzz.cases import PARAMETERS, Case, cases, rows_targets_weights
from tests.fuzz.running import ALLOWED, PARTS, alarm, assert_clear, quiet, run_examples

EXAMPLES, SHORT = 200, 2  # of each language
WRITERS = {
    "c": (to_c, shutil.which("cc"), "no C compiler"),
    "js": (to_js, shutil.which("node"), "no Node"),
    "onnx": (partial(to_onnx, dtype="float64"), find_spec("onnxruntime"), "no onnxruntime"),
}
MOST = 1e-8  # difference, as a share of the coefficients
_KERNELS = ("sigmoid", "poly")  # may be of any size, and cancel


@st.composite
def models(draw):
    return draw(cases(draw(st.sampled_from(sorted(PARAMETERS)))))


def examine(case: Case, write) -> None:
    X, y, weight, _ = rows_targets_weights(case.data)
    if case.data["unit"] not in (1.0, 1e-3, 1e6) or case.params.get("kernel") in _KERNELS:
        return
    with alarm(60), quiet():
        try:
            model = case.model().fit(X, y, sample_weight=weight)
            exported = write(model)
        except (*ALLOWED, NotImplementedError) as error:
            assert_clear(error)
            return
        found = check(model, exported, n_rows=50)
        far = case.data["X"] == "far from zero"  # where rounding of the rows shows
        assert found.difference <= (100 * MOST if far else MOST), found


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("language", WRITERS)
def test_exports(language, part):
    write, tool, missing = WRITERS[language]
    if tool is None:
        pytest.skip(missing)
    run_examples(lambda case: examine(case, write), models(), EXAMPLES, short=SHORT)


def test_the_comparison_can_fail():
    """A model whose intercept is another one is not the exported one."""
    if shutil.which("node") is None:
        pytest.skip("no Node")
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = leansvm.LSSVR().fit(X, X[:, 0])
    text = to_js(model)
    model.intercept_ = model.intercept_ + 0.1
    assert check(model, text).difference > MOST
