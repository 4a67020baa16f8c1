"""Random frames with text, dates, booleans and gaps: every model fits them, or says why not."""

import pickle

import numpy as np
import pytest
from hypothesis import strategies as st

import leansvm
from tests.fuzz.running import (
    ALLOWED,
    PARTS,
    alarm,
    assert_clear,
    assert_close,
    quiet,
    run_examples,
    values_of,
)

pd = pytest.importorskip("pandas", reason="frames need pandas")
pytest.importorskip("narwhals", reason="frames need narwhals")

EXAMPLES, SHORT = 1_500, 40
_CHEAP = {"kernel": "rbf", "gamma": "scale"}
MODELS = {
    "LSSVC": {},
    "LSSVR": {},
    "L2SVC": {},
    "SparseLSSVC": {"C": 1.0, **_CHEAP},
    "SparseLSSVR": {"C": 1.0, **_CHEAP},
    "ReducedSVC": {"n_basis": 5, "max_iter": 10, "C": 1.0, **_CHEAP},
    "ReducedSVR": {"n_basis": 5, "max_iter": 10, "C": 1.0, **_CHEAP},
    "LowRankLSSVC": {"n_basis": 2, "max_iter": 3},
    "LowRankLSSVR": {"n_basis": 2, "max_iter": 3},
}
_WORDS = ("a", "b", "", " ", "NA", "ä€", "1", "1.0", "True", "2024-01-01", "x" * 300, "=1+1")
_START = np.datetime64("2023-12-31T23:00")


def _days(rng, n):
    return pd.Series(_START + rng.integers(-(10**6), 10**6, n).astype("timedelta64[m]"))


COLUMNS = {
    "number": lambda rng, n: pd.Series(rng.normal(size=n)),
    "large": lambda rng, n: pd.Series(1e9 + rng.normal(size=n)),
    "whole": lambda rng, n: pd.Series(rng.integers(-3, 4, n)),
    "nullable": lambda rng, n: pd.Series(rng.integers(0, 5, n), dtype="Int64"),
    "truth": lambda rng, n: pd.Series(rng.random(n) < 0.5),
    "text": lambda rng, n: pd.Series(rng.choice(_WORDS, n), dtype=object),
    "category": lambda rng, n: pd.Series(pd.Categorical(rng.choice(["u", "v", "w"], n))),
    "names": lambda rng, n: pd.Series([f"name {i}" for i in range(n)], dtype=object),
    "date": _days,
    "zone": lambda rng, n: _days(rng, n).dt.tz_localize("UTC"),
    "empty": lambda rng, n: pd.Series([None] * n, dtype=object),
    "constant": lambda rng, n: pd.Series(np.full(n, 7.0)),
    "id": lambda rng, n: pd.Series(np.arange(n)),
}


@st.composite
def tables(draw):
    """Draw what a frame is made of, and the model."""
    kinds = st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5)
    return {
        "kinds": draw(kinds),
        "rows": draw(st.sampled_from((3, 8, 15, 40, 120))),
        "gaps": draw(st.sampled_from((0.0, 0.0, 0.2, 0.9))),
        "seed": draw(st.integers(0, 10_000)),
        "model": draw(st.sampled_from(sorted(MODELS))),
    }


def frame_of(facts, rng, n):
    """Return a frame; a share of its values is missing."""
    columns = {}
    for i, kind in enumerate(facts["kinds"]):
        column = COLUMNS[kind](rng, n)
        if kind not in ("truth", "whole", "id"):  # which have no missing value
            column = column.mask(rng.random(n) < facts["gaps"])
        columns[f"{kind}{i}"] = column
    return pd.DataFrame(columns)


def examine(facts):
    rng = np.random.default_rng(facts["seed"])
    n = facts["rows"]
    whole = frame_of(facts, rng, n + 6)
    train, new = whole.iloc[:n], whole.iloc[n - 3 :]  # rows of training and others
    y = rng.normal(size=n)
    model = getattr(leansvm, facts["model"])(**MODELS[facts["model"]])
    with alarm(), quiet():
        try:
            model.fit(train, y if facts["model"].endswith("R") else np.arange(n) % 2)
        except ALLOWED as error:
            assert_clear(error)
            return
        try:
            values = values_of(model, new)
        except ALLOWED as error:  # gaps, after training rows without any; words after numbers
            assert_clear(error)
            return
        assert np.isfinite(values).all()
        try:
            assert np.array_equal(values, values_of(model, new[new.columns[::-1]]))
        except ALLOWED as error:  # as scikit-learn refuses another order
            assert_clear(error)
        alone = [values_of(model, new.iloc[[i]])[0] for i in range(len(new))]
        assert_close(values, np.array(alone), 1e-9)
        assert np.array_equal(values, values_of(pickle.loads(pickle.dumps(model)), new))
        try:  # gaps where training rows had none
            assert np.isfinite(values_of(model, new.mask(rng.random(new.shape) < 0.5))).all()
        except ALLOWED as error:  # plain numbers without gaps need no encoder, and have none
            assert_clear(error)
            assert "table_" not in vars(model)


@pytest.mark.parametrize("part", PARTS)
def test_frames(part):
    run_examples(examine, tables(), EXAMPLES, short=SHORT)
