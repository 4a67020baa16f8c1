"""Thresholds chosen on left-out decision values: those of refitting, and usable as they are."""

import shutil
import subprocess

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from leansvm import (
    L2SVC,
    LSSVC,
    LowRankLSSVC,
    Predictor,
    ReducedSVC,
    SparseLSSVC,
    persistence,
)
from leansvm.export import check, compress, to_c, to_js, to_onnx
from leansvm.export._run import C_OPTIONS
from leansvm.inspection import (
    effects,
    explain,
    importance,
    inspect_rows,
    neighbours,
    novelty,
)
from leansvm.model_selection import tune_threshold

rng = np.random.default_rng(0)


def rare(n, share=0.08):
    y = rng.random(n) < share
    return rng.normal(size=(n, 3)) + 1.5 * y[:, None], np.where(y, "yes", "no")


X, y = rare(300)
X_TEST, Y_TEST = rare(2000)
SMALL = {"kernel": "rbf", "gamma": 0.2, "n_basis": 40, "random_state": 0}


def test_left_out_values_are_those_of_refitting():
    """The score at the threshold is the best of all thresholds on brute-force left-out values."""
    few, labels = X[:80], np.arange(80) % 4 == 0
    few = few + 1.0 * labels[:, None]
    model = LSSVC(1.0, gamma=0.2).fit(few, labels)
    values = np.empty(80)
    for i in range(80):
        rest = np.arange(80) != i
        values[i] = clone(model).fit(few[rest], labels[rest]).decision_function(few[[i]])[0]
    tuned = tune_threshold(model, "f1")
    best = max(f1_score(labels, values >= t) for t in values)
    assert f1_score(labels, values >= tuned.threshold) == pytest.approx(best)


@pytest.mark.parametrize(
    "model",
    [
        SparseLSSVC(**SMALL),
        LSSVC(),
        L2SVC(),
        ReducedSVC(1.0, **SMALL),
        LowRankLSSVC(n_basis=3, random_state=0),
        make_pipeline(StandardScaler(), SparseLSSVC(**SMALL)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_tuned_model_predicts_at_once_and_better(model):
    fitted = clone(model).fit(X, y)
    tuned = tune_threshold(fitted, "balanced_accuracy")
    assert tuned.estimator.estimator is fitted
    predicted = tuned.predict(X_TEST)
    assert set(predicted) == {"no", "yes"}
    before = balanced_accuracy_score(Y_TEST, fitted.predict(X_TEST))
    assert balanced_accuracy_score(Y_TEST, predicted) > before + 0.02
    by_folds = TunedThresholdClassifierCV(model, scoring="balanced_accuracy", cv=2).fit(X, y)
    expected = balanced_accuracy_score(Y_TEST, by_folds.predict(X_TEST))
    assert balanced_accuracy_score(Y_TEST, predicted) > expected - 0.05


def test_a_loaded_model_needs_its_rows(tmp_path):
    X, y = rare(400)
    options = {"n_basis": 40, "class_weight": {"yes": 2.0, "no": 1.0}, "random_state": 0}
    model = SparseLSSVC(kernel="rbf", gamma=0.3, **options)
    model.fit(X, y).save(tmp_path / "m.skops")
    loaded = persistence.load(tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"keep_rows\(X, y\)"):
        tune_threshold(loaded, "f1")
    expected = tune_threshold(model, "f1").threshold
    assert tune_threshold(loaded.keep_rows(X, y), "f1").threshold == pytest.approx(expected)


def test_a_function_sees_labels_and_class_weights_do_not_count():
    def gain(truth, predicted):
        return 5.0 * np.sum((truth == "yes") & (predicted == "yes")) - np.sum(predicted == "yes")

    model = SparseLSSVC(**SMALL).fit(X, y)
    found = tune_threshold(model, gain).threshold
    values = model._left_out[:, 0]
    gains = [gain(y, np.where(values >= t, "yes", "no")) for t in values]
    assert gain(y, np.where(values >= found, "yes", "no")) == max(gains)
    heavy = SparseLSSVC(class_weight={"no": 1.0, "yes": 7.0}, **SMALL).fit(X, y)
    np.testing.assert_allclose(heavy._left_out[:, -1], 1.0)


def test_bad_input_is_named():
    model = SparseLSSVC(**SMALL).fit(X, y)
    for metric in ("f2", "roc_auc", "neg_log_loss", 3):
        with pytest.raises(ValueError, match=f"metric={metric!r}.*balanced_accuracy"):
            tune_threshold(model, metric)
    with pytest.raises(ValueError, match="calibrate=True"):
        tune_threshold(SparseLSSVC(calibrate=False, **SMALL).fit(X, y))
    with pytest.raises(ValueError, match="two classes, got 3"):
        tune_threshold(SparseLSSVC(**SMALL).fit(X, np.arange(300) % 3))
    with pytest.raises(TypeError, match=r"LogisticRegression.*TunedThresholdClassifierCV"):
        tune_threshold(LogisticRegression().fit(X, y))


def test_the_rarer_class_is_the_positive_one_whatever_its_label():
    named = np.where(y == "yes", "fraud", "ok")  # "ok" comes last in the alphabet
    one, other = (SparseLSSVC(1.0, **SMALL).fit(X, labels) for labels in (y, named))
    expected = tune_threshold(one, "f1").predict(X_TEST) == "yes"
    assert 0 < expected.mean() < 0.5
    assert np.array_equal(tune_threshold(other, "f1").predict(X_TEST) == "fraud", expected)
    chosen = tune_threshold(other, "f1", pos_label="ok").predict(X_TEST)
    assert np.mean(chosen == "fraud") < expected.mean()
    with pytest.raises(ValueError, match="pos_label='no' is not one of"):
        tune_threshold(other, "f1", pos_label="no")


# ---------------------------------------------------------------------------- elsewhere


def tuned_models():
    plain = SparseLSSVC(**SMALL).fit(X, y)
    pipeline = make_pipeline(StandardScaler(), SparseLSSVC(**SMALL)).fit(X, y)
    return [tune_threshold(plain, "f1"), tune_threshold(pipeline, "balanced_accuracy")]


TUNED = tuned_models()
BOTH = pytest.mark.parametrize("tuned", TUNED, ids=["plain", "pipeline"])


def asked_labels(tuned):
    labels = tuned.predict(X_TEST)
    assert (labels != tuned.estimator.predict(X_TEST)).sum() > 20
    return labels


@BOTH
def test_a_predictor_decides_by_the_threshold(tuned):
    predictor = Predictor(tuned)
    np.testing.assert_array_equal(predictor.predict(X_TEST), asked_labels(tuned))
    assert predictor.predict(X_TEST[3]) == tuned.predict(X_TEST[3:4])[0]
    expected = tuned.predict_proba(X_TEST)
    np.testing.assert_allclose(predictor.predict_proba(X_TEST), expected, atol=1e-12)


@BOTH
@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_javascript_decides_by_the_threshold(tuned, tmp_path):
    (tmp_path / "model.mjs").write_text(to_js(tuned))
    (tmp_path / "main.mjs").write_text(
        'import { predict } from "./model.mjs";\n'
        f"for (const row of {X_TEST.tolist()}) console.log(predict(row));"
    )
    done = subprocess.run(["node", tmp_path / "main.mjs"], check=True, stdout=-1, text=True)
    assert done.stdout.split() == asked_labels(tuned).tolist()
    assert check(tuned, to_js(tuned), n_rows=50).difference < 1e-12


@BOTH
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("store", ["float64", "int8"])
def test_c_decides_by_the_threshold(tuned, store, tmp_path):
    (tmp_path / "model.h").write_text(to_c(tuned, store=store))
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "model.h"\n'
        "int main(void) { double x[3], out[1];\n"
        "while (fread(x, sizeof *x, 3, stdin) == 3) puts(model_classes[model_predict(x, out)]);\n"
        "return 0; }\n"
    )
    build = ["cc", *C_OPTIONS, "main.c", "-o", "main", "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True)
    found = subprocess.run([tmp_path / "main"], input=X_TEST.tobytes(), stdout=-1, check=True)
    share = np.mean(np.array(found.stdout.decode().split()) == asked_labels(tuned))
    assert share == 1 if store == "float64" else share > 0.95


@BOTH
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_graphs_decide_by_the_threshold(tuned, dtype):
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = to_onnx(tuned, dtype=dtype).SerializeToString()
    rows = X_TEST.astype(np.float32).astype(dtype)
    (found,) = onnxruntime.InferenceSession(graph).run(["label"], {"X": rows})
    np.testing.assert_array_equal(found, tuned.predict(rows.astype(np.float64)))


@BOTH
def test_a_compressed_model_keeps_the_threshold(tuned):
    small = compress(tuned, X_TEST, Y_TEST)
    wrong = np.mean(tuned.predict(X_TEST[1::2]) != Y_TEST[1::2])
    assert small.trials[0]["error"] == pytest.approx(wrong, abs=2e-3)
    assert small.formula.threshold == tuned.threshold


def test_the_command_exports_a_tuned_file(tmp_path):
    from typer.testing import CliRunner

    from leansvm.cli._app import app

    persistence.save(TUNED[0], tmp_path / "m.skops")
    command = ["export", str(tmp_path / "m.skops"), "-o", str(tmp_path / "m.onnx")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output


@BOTH
def test_a_tuned_model_is_inspected_as_the_model(tuned):
    model = tuned.estimator.estimator
    rows = X_TEST[:3]
    found, expected = explain(tuned, rows, X, random_state=0), explain(model, rows, X)
    np.testing.assert_allclose(found.contributions, expected.contributions)
    np.testing.assert_allclose(effects(tuned, X).slope, effects(model, X).slope)
    nearest = neighbours(tuned, rows, y)
    np.testing.assert_array_equal(nearest.row, neighbours(model, rows, y).row)


@BOTH
def test_importance_scores_the_labels_of_the_threshold(tuned):
    found = importance(tuned, X_TEST, Y_TEST, scoring="balanced_accuracy", max_rows=None)
    expected = balanced_accuracy_score(Y_TEST, tuned.predict(X_TEST))
    assert found.score == pytest.approx(expected)
    order = np.random.RandomState(0).permutation(len(X_TEST))
    moved = X_TEST.copy()
    moved[:, 0] = moved[order, 0]
    loss = expected - balanced_accuracy_score(Y_TEST, tuned.predict(moved))
    assert found.losses[0, 0] == pytest.approx(loss)


def test_rows_and_novelty_of_a_tuned_model():
    tuned = TUNED[0]
    model = tuned.estimator.estimator
    np.testing.assert_array_equal(novelty(tuned, X_TEST[:5]), novelty(model, X_TEST[:5]))
    found, expected = inspect_rows(tuned, X, y), inspect_rows(model, X, y)
    np.testing.assert_array_equal(found.suspicion, expected.suspicion)


def test_other_thresholds_are_refused():
    model = SparseLSSVC(**SMALL).fit(X, y)
    tuned = FixedThresholdClassifier(FrozenEstimator(model), threshold=0.2)
    for use in (to_js, Predictor, lambda tuned: explain(tuned, X[:1], X)):
        with pytest.raises((TypeError, ValueError), match="tune_threshold returns"):
            use(tuned.fit(X, y))
    assert importance(tuned.fit(X, y), X, y, n_repeats=1).score > 0.5
