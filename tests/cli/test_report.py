"""The training report: everything a reader asks for is on it, and a phone can show it."""

import html
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

for module in ("typer", "rich", "pyarrow", "pandas", "skops", "matplotlib", "jinja2"):
    pytest.importorskip(module)

from sklearn.datasets import load_iris, make_blobs  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from leansvm import LSSVR, SparseLSSVR  # noqa: E402
from leansvm.cli._app import app  # noqa: E402
from leansvm.cli._read import FileData  # noqa: E402
from leansvm.cli._report._answers import class_colours  # noqa: E402
from leansvm.cli._report._importance import measured  # noqa: E402
from leansvm.cli._report._model import feature_scales  # noqa: E402
from leansvm.cli._run import TrainingRun, in_words  # noqa: E402
from leansvm.inspection import importance  # noqa: E402
from leansvm.plotting.html import bullets  # noqa: E402


def train(folder, *arguments):
    paths = [folder / "d.npz", "-o", folder / "m.skops", "--report", folder / "report.html"]
    done = CliRunner().invoke(app, [str(value) for value in ("train", *paths, *arguments)])
    assert done.exit_code == 0, done.stderr
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    X, y = load_iris(return_X_y=True)
    np.savez(folder / "d.npz", X=X, y=np.array(["setosa", "versicolor", "<virginica>"])[y])
    train(folder)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "accuracy (without a model 33.3 %)",
        "Each row was predicted by a model that had not seen it: 5-fold cross-validation",
        "What to try next",
        "loss of accuracy",
        "Confusion matrix",
        "Calibration",
        "Brier score",
        "How sure is it?",
        "classes in the set",
        "What the columns do",
        "value, the decision value changes by",
        "Which rows look wrong?",
        "predicted without it",
        "Sparsity path",
        "Choice of C",
        "Time by phase",
        "fit: solve",
        "persistence.load(&#34;m.skops&#34;)",
        "leansvm predict m.skops new.npz",
    ],
)
def test_the_report_answers(page, text):
    assert text in page


def test_the_report_needs_nothing_else(page):
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "@import" not in page and "url(http" not in page and "<script" not in page


def test_pictures_do_not_share_their_ids(page):
    ids = re.findall(r'<clipPath id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 2


def test_text_is_escaped(page):
    assert "<virginica>" not in page and "&lt;virginica&gt;" in page


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Return the page of a model whose scales are set by hand: two of 25 features in use."""
    from leansvm import SparseLSSVC

    def fit(self, X, y, **options):
        plain(self, X, y, **options)
        self.feature_scales_ = np.r_[0.25, 1.0, np.zeros(X.shape[1] - 2)]
        self.kernel_ = "rbf"
        return self

    plain = SparseLSSVC.fit
    folder = tmp_path_factory.mktemp("learned")
    X = np.random.default_rng(0).normal(size=(60, 25))
    np.savez(folder / "d.npz", X=X, y=(X[:, 1] > 0).astype(int))
    plain_settings = ("-s", "gamma=0.1", "-s", "kernel=rbf", "-s", "n_basis=20", "--cv", "0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparseLSSVC, "fit", fit)
        return folder, train(folder, "-e", "sparse", "--no-calibrate", *plain_settings)


def test_learned_scales_are_drawn_and_put_in_words(learned):
    _, page = learned
    assert "How quickly does it" in page and "how quickly the kernel changes" in page
    assert ">20 of 25 features<" in page
    assert "does not use 23 of 25 features: x2, x3" in page
    assert "The fit chose C and the scales of the features by itself" in page


def test_equal_scales_are_not_drawn():
    scales = dict.fromkeys("abc", 1.0) | {"d": 0.0}
    section = feature_scales(SimpleNamespace(feature_scales=lambda: scales))
    assert "One scale for all features" in section and "<svg" not in section
    assert "does not use 1 of 4 features: d" in section


def test_importance_is_that_of_rows_left_out():
    """Noise matters to a model on its own rows, and not on others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    y = X[:, 0] + rng.normal(size=60)
    model = SparseLSSVR(100.0, "rbf", gamma=0.3, n_basis=60).fit(X, y)
    data = FileData(Path("d.npz"), X, y, None)
    run = TrainingRun(data, "regression", None, make_pipeline(FunctionTransformer(), model), [])
    found = measured(run)
    words, found = found.on_rows, found.importance
    seen = importance(model, X, y, scoring="neg_mean_absolute_error")
    assert words == "60 rows that the model has not seen"
    assert seen.mean[1:].max() > 0.2 > found.mean[1:].max() and found.strongest(1)[0] == 0


def test_a_class_has_its_own_colour_as_long_as_there_are_colours():
    strength = np.eye(10)[:, :2]
    found = SimpleNamespace(strength=strength)
    colours = class_colours(found, [0, 1])
    assert sorted(colours.values()) == list(range(len(colours))) and len(colours) <= 8
    found.strength = np.kron(np.eye(4), np.ones((4, 1)))  # four other classes for each column
    assert class_colours(found, range(4)) == {}


def test_options_in_sentences_are_code():
    text = bullets(["use `--drop 'a b'` <now>", "a ` alone"])
    assert "use <code>--drop &#39;a b&#39;</code> &lt;now&gt;" in text
    assert "<li>a ` alone</li>" in text


def test_learned_scales_are_kept_with_the_model(learned):
    folder, _ = learned
    shown = CliRunner().invoke(app, ["info", str(folder / "m.skops")])
    assert shown.exit_code == 0
    assert "x1 1.00, x0 0.25, x2 0.00" in shown.stdout and "20 more" in shown.stdout


@pytest.mark.usefixtures("empty_drawings")
def test_a_regression_has_intervals_and_its_wrong_row_is_first(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = X[:, 1] + 0.1 * rng.normal(size=120)
    y[41] = 9.0
    np.savez(tmp_path / "d.npz", X=X, y=y)
    options = ("-e", "sparse", "-s", "gamma=0.1", "-s", "kernel=rbf", "-s", "n_basis=20")
    page = train(tmp_path, *options, "--cv", "0")
    assert "prediction intervals of some rows" in page and "(jackknife+)" in page
    table = page[page.index("Which rows look wrong?") :]
    assert re.search(r'<th scope="row">(\d+)</th>', table).group(1) == "42"
    assert page.index('"effect of x1"') < page.index('"effect of x0"')


@pytest.mark.parametrize("estimator", ["reduced", "low-rank"])
@pytest.mark.usefixtures("empty_drawings")
def test_machines_without_exact_left_out_models_say_less(tmp_path, estimator):
    X, y = load_iris(return_X_y=True)
    np.savez(tmp_path / "d.npz", X=X, y=y)
    page = train(tmp_path, "-e", estimator, "-s", "n_basis=5", "--no-calibrate", "--cv", "0")
    assert "How sure is it?" not in page and "Which rows look wrong?" not in page
    assert ("What the columns do" in page) == (estimator == "reduced")


def test_values_in_words():
    assert in_words(np.float64(0.1234567)) == "0.123457"
    assert in_words("matern32") == "matern32"
    assert in_words([0.5, 0.0, 2.0]) == "0 to 2, one for each of 3 features"
    assert in_words(np.full(3, 0.5)) == "0.5 for all features"
    assert in_words([0.5]) == "0.5 for all features"


def test_a_model_without_learned_scales_has_no_section_on_them(tmp_path):
    X, y = load_iris(return_X_y=True)
    np.savez(tmp_path / "d.npz", X=X, y=y)
    page = train(tmp_path, "-e", "lssvm", "-s", "gamma=0.1", "--cv", "0")
    assert "How quickly does it" not in page
    assert "Which columns matter" in page and "Permutation importance" in page
    assert page.index(">x2<") < page.index(">x0<")  # the petals before the sepals


def test_scores_stand_beside_those_of_no_model(page):
    text = re.sub(r"<[^>]+>", " ", page)
    assert "accuracy (without a model 33.3 %)" in text
    rows = re.findall(
        r"(accuracy|F1, mean of the classes|AUC|log-loss)\s+([\d.]+)(?: %)?\s+([\d.]+)", text
    )
    found = {name: (float(model), float(without)) for name, model, without in rows}
    assert found["accuracy"][0] > 90 and found["accuracy"][1] == 33.3
    assert found["AUC"][0] > 0.95 and found["AUC"][1] == 0.5
    assert found["log-loss"][0] < 0.3 < found["log-loss"][1] == 1.099
    assert found["F1, mean of the classes"][0] > 90


def test_numbers_of_a_regression_are_for_people(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 60)
    np.savez(tmp_path / "d.npz", X=x[:, None], y=41_540.3 + 9000.5 * x)
    page = train(tmp_path, "-e", "lssvm", "-s", "gamma=0.1", "--cv", "3")
    assert "e+0" not in re.sub(r"<path[^>]*>", "", page)
    assert re.search(r">\d{2},\d{3}</text>", page)  # at an axis
    assert "standard deviation of the target" in page and "always the mean" in page


def test_a_phone_shows_the_report(folder, browse):
    seen = browse(folder / "report.html", 400)
    assert seen["title"].startswith("Training report")
    assert seen["overflow"] == 0 and seen["wide"] == []
    assert seen["tables"] >= 3 and seen["drawings"] >= 4
    assert seen["smallest"] >= 13
    assert seen["console"] == [] and seen["loaded"] == []


@pytest.mark.usefixtures("empty_drawings")
def test_many_classes_and_no_probabilities(tmp_path):
    X, y = make_blobs(200, centers=15, cluster_std=2.0, random_state=0)
    np.savez(tmp_path / "d.npz", X=X, y=y)
    page = train(
        tmp_path,
        "--no-calibrate",
        "-e",
        "sparse",
        "-s",
        "n_basis=30",
        "-s",
        "C=1",
        "-s",
        "gamma=scale",
    )
    assert "The most frequent confusions" in page
    assert "This model gives no probabilities" in page
    assert "All parameters were given" in page


def test_two_classes_of_a_machine_without_a_kernel(tmp_path):
    X, y = make_blobs(60, centers=2, cluster_std=4.0, random_state=0)
    np.savez(tmp_path / "d.npz", X=X, y=y)
    page = train(tmp_path, "-e", "low-rank", "--cv", "2")
    assert "probability of 1" in page and "Sparsity path" not in page


@pytest.mark.usefixtures("short_search")
def test_a_class_of_one_row(tmp_path):
    X, y = load_iris(return_X_y=True)
    np.savez(tmp_path / "d.npz", X=X[:101], y=y[:101])
    assert "Confusion matrix" in train(tmp_path)


@pytest.mark.usefixtures("empty_drawings")
def test_leave_one_out_has_a_calibration_curve(tmp_path):
    X, y = load_iris(return_X_y=True)
    np.savez(tmp_path / "d.npz", X=X, y=y)
    page = train(tmp_path, "--cv", "loo", "-e", "lssvm")
    assert "exact leave-one-out" in page and "calibration curve" in page
    page = train(tmp_path, "--cv", "loo", "-e", "lssvm", "--no-calibrate")
    assert "exact leave-one-out" in page and "This model gives no probabilities" in page


def test_names_are_no_formulas(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 2))
    np.savez(tmp_path / "d.npz", X=X, y=np.where(X[:, 0] > 0, "$x^{$", r"a$\frac$"))
    page = train(tmp_path, "-e", "lssvm", "--cv", "2")
    assert ">$x^{$</text>" in page and r">a$\frac$</text>" in page
    assert r">share of a$\frac$ in %</text>" in page or ">share of $x^{$ in %</text>" in page


def test_categories_that_part_of_the_rows_lack(run):
    import pandas as pd

    rng = np.random.default_rng(0)
    a, c = rng.normal(size=60), rng.choice(["x", "y"], 60).astype(object)
    c[:20] = [f"rare{i}" for i in range(20)]
    pd.DataFrame({"a": a, "c": c, "y": np.where(a > 0, "u", "v")}).to_csv("d.csv", index=False)
    gamma = [0.1] * 4  # a number, two categories, and one for the rare ones
    options = ("-e", "lssvm", "-s", f"gamma={gamma}", "--cv", "0", "--report", "r.html")
    done = run("train", "d.csv", "-t", "y", "-o", "m.skops", *options)
    assert done.exit_code == 0, done.stderr


def test_the_kernel_of_a_report_sees_rows_within_the_learned_bounds():
    x = np.array([[0.0], [1.0], [2.0]])
    model = LSSVR(gamma=0.5).fit(x, [0.0, 1.0, 2.0])
    data = FileData(Path("d.npz"), x, np.arange(3.0), None)
    run = TrainingRun(data, "regression", None, make_pipeline("passthrough", model), [])
    far = np.array([[5.0], [1.5]])
    np.testing.assert_array_equal(run.prepared_on(np.arange(3))[1](far), far)
    model.clip_ = (np.array([0.0]), np.array([2.0]))
    np.testing.assert_array_equal(run.prepared_on(np.arange(3))[1](far), [[2.0], [1.5]])


@pytest.fixture
def shops():
    """Return a table with a column of noise of 500 levels, which has mean targets."""
    import pandas as pd

    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1]})
    frame["shop"] = [f"s{v}" for v in rng.integers(0, 500, 2000)]
    sold = rng.random(2000) < 1 / (1 + np.exp(2.5 - x[:, 0] - 0.7 * x[:, 1]))
    return frame.assign(sold=np.where(sold, "yes", "no"))


@pytest.mark.usefixtures("empty_drawings")
def test_the_importance_knows_no_target_of_rows_left_out(run, shops, monkeypatch):
    import leansvm.cli._report as report

    seen, measured = [], report.measured
    monkeypatch.setattr(report, "measured", lambda run: seen.append(measured(run)) or seen[-1])
    text = words(written(run, shops, "sold", *QUICK, "--cv", "0")[0])
    found = seen[0].importance
    assert found.names[found.strongest(1)[0]] == "a" and found.mean[2] < 0.02
    assert 0.7 < found.score < 0.83 and "500 rows that the model has not seen" in text


@pytest.mark.usefixtures("empty_drawings")
def test_columns_are_dropped_only_if_a_model_without_them_is_as_good(run, shops, monkeypatch):
    import leansvm.cli._report._importance as module

    frame = shops.assign(noise=shops.shop.rank()).drop(columns="shop")
    options = (*QUICK, "--cv", "0")
    assert "do not matter: --drop noise" in words(written(run, frame, "sold", *options)[0])
    few = frame[:400]  # 45 of them are of the rarer class
    assert "do not matter" not in words(written(run, few, "sold", *options)[0])

    def wrong(model, X, y, **settings):
        found = importance(model, X, y, **settings)
        found.losses[1:] = 0.0  # as if b, which the targets depend on, were noise
        return found

    monkeypatch.setattr(module.inspection, "importance", wrong)
    assert "do not matter" not in words(written(run, frame, "sold", *options)[0])


def test_a_search_scores_learned_scales_without_the_row_s_own_target(run, shops, monkeypatch):
    import leansvm.cli._tune_search as search

    shops.to_csv("d.csv", index=False)
    seen, score = [], search._left_out_score
    monkeypatch.setattr(
        search, "_left_out_score", lambda run, X, **k: seen.append((X, k)) or score(run, X, **k)
    )
    options = ("--set", "n_basis=30", "--cv", "0", "--json")
    done = run("tune", "d.csv", "-t", "sold", "-o", "m.skops", *options)
    assert done.exit_code == 0, done.stderr
    X, y = seen[-1][0], np.where(shops.sold == "yes", 1.0, -1.0)
    assert X.shape == (2000, X.shape[1])
    assert max(abs(np.corrcoef(column, y)[0, 1]) for column in X.T[2:]) < 0.1


# ---------------------------------------------------------------------------- what fits the task


def written(run, frame, target, *options):
    """Train on a frame; return the report as text without marks, and what the command printed."""
    frame.to_csv("d.csv", index=False)
    done = run("train", "d.csv", "-t", target, "-o", "m.skops", "--report", "r.html", *options)
    assert done.exit_code == 0, done.stderr
    with open("r.html", encoding="utf-8") as file:
        page = file.read()
    return page, done.stdout


def words(page):
    text = re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<style>.*?</style>", "", page))
    return " ".join(html.unescape(text).split())


QUICK = ("-e", "sparse", "-s", "gamma=0.1", "-s", "kernel=rbf", "-s", "n_basis=30", "--cv", "2")


@pytest.fixture
def rare():
    import pandas as pd

    rng = np.random.default_rng(0)
    n = 600
    x = rng.normal(size=n)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.permutation(n), unit="D")
    y = np.where(x + 0.7 * rng.normal(size=n) > 2.2, "fraud", "ok")
    noise = rng.normal(size=n)
    return pd.DataFrame({"calls": x, "day": day, "noise": noise, "country": "DE", "outcome": y})


def test_the_rarer_class_is_looked_for(run, rare):
    page, printed = written(run, rare, "outcome", *QUICK)
    share = 100 * float((rare.outcome == "fraud").mean())
    assert share < 5
    for text in ("recall of fraud", "average precision of fraud", "AUC", "F1 of fraud"):
        assert text in page and (text in printed or text.startswith("F1"))
    text = words(page)
    assert f"average precision of fraud (without a model {share:.1f} %)" in text
    assert "Precision and recall of fraud" in page and "ROC curve of fraud" in page
    assert "probability of fraud in %" in page and "upwards: towards fraud" in text
    assert "loss of AUC" in page and page.index("importance of the columns") < page.index(
        "confusion matrix"
    )
    assert f"this class has {share:.1f} % of the rows" in text
    assert "Column 'country' is left out" in text and "effect of country" not in page


def test_predict_prints_the_scores_of_the_rare_class(run, rare):
    import json

    rare.to_csv("d.csv", index=False)
    assert run("train", "d.csv", "-t", "outcome", "-o", "m.skops", *QUICK).exit_code == 0
    done = run("predict", "m.skops", "d.csv", "-o", "p.csv")
    assert "accuracy 0.9" in done.stderr and "recall of fraud" in done.stderr
    scores = json.loads(run("predict", "m.skops", "d.csv", "-o", "p.csv", "--json").stdout)
    assert 0.5 < scores["scores"]["AUC"] <= 1 and "accuracy" in scores


@pytest.mark.parametrize(
    ("options", "by"),
    [
        (("--grid", "gamma=0.001,1"), "auc"),
        (("-e", "reduced", "--grid", "C=0.00001,1"), "auc"),
        (("--grid", "gamma=0.001,1", "--metric", "log-loss"), "log-loss"),
    ],
)
@pytest.mark.usefixtures("empty_drawings")
def test_a_search_with_a_rare_class_is_not_by_accuracy(run, rare, options, by):
    import json

    rare.drop(columns="day").to_csv("d.csv", index=False)
    files = ("d.csv", "-t", "outcome", "-o", "m.skops", "--report", "r.html")
    done = run("tune", *files, "--set", "n_basis=20", *options)
    assert done.exit_code == 0, done.stderr
    assert f"2 candidates tried and compared by {by}" in done.stderr
    assert "leansvm tune" not in words(Path("r.html").read_text("utf-8")).partition("Made by")[0]
    assert f'<th scope="col">{by}</th>' in Path("r.html").read_text(encoding="utf-8")
    found = json.loads(run("info", "m.skops", "--json").stdout)["metadata"]["trials"]
    scores = [trial["score"] for trial in found]
    best = min(scores) if by == "log-loss" else max(scores)
    name = "C" if "reduced" in options else "gamma"
    from leansvm import load

    model = load("m.skops")
    assert (
        getattr(model[-1] if hasattr(model, "steps") else model, name)
        == found[scores.index(best)][name]
    )
    done = run("tune", *files, "--metric", "auc", "--no-calibrate")
    assert done.exit_code == 2 and "needs probabilities" in done.stderr


@pytest.mark.usefixtures("empty_drawings")
def test_effects_go_up_towards_the_class_looked_for(run, rare):
    from leansvm import load
    from leansvm.cli._report._answers import _looks_for_first_class

    page, _ = written(run, rare, "outcome", *QUICK, "--positive", "ok")
    assert "recall of ok" in page and "upwards: towards ok" in words(page)
    model = make_pipeline("passthrough", load("m.skops"))
    one = TrainingRun(None, "classification", None, model, [], positive="fraud")
    assert _looks_for_first_class(one)
    one.positive = "ok"
    assert not _looks_for_first_class(one)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--positive", "theft"), "the classes are fraud and ok"),
        (("--metric", "mae"), "choose accuracy, balanced-accuracy, recall"),
    ],
)
def test_scores_that_do_not_fit_are_refused(run, rare, options, text):
    rare.to_csv("d.csv", index=False)
    done = run("train", "d.csv", "-t", "outcome", "-o", "m.skops", *options)
    assert done.exit_code != 0 and text in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("metric", "name", "importance"),
    [
        ("recall", "recall of fraud", "loss of recall of fraud"),
        ("log-loss", "log-loss", "growth of log-loss"),
        pytest.param(
            "average-precision",
            "average precision of fraud",
            "loss of average precision of fraud",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "balanced-accuracy",
            "balanced accuracy",
            "loss of balanced accuracy",
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.usefixtures("empty_drawings")
def test_the_metric_asked_for_comes_first(run, rare, metric, name, importance):
    page, printed = written(run, rare, "outcome", *QUICK, "--metric", metric)
    assert re.search(r"<dt>([^(<]+) \(without", page).group(1) == name
    assert importance in page and f"{name[0].upper()}{name[1:]} of the folds:" in words(page)
    assert name in printed


@pytest.mark.usefixtures("empty_drawings")
def test_a_rare_class_of_three_counts_in_the_importance(run):
    import pandas as pd

    x = np.random.default_rng(0).normal(size=(300, 2))
    kind = np.where(x[:, 0] > 1.5, "rare", np.where(x[:, 1] > 0, "up", "down"))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "kind": kind})
    assert "loss of AUC" in written(run, frame, "kind", *QUICK)[0]


@pytest.mark.usefixtures("empty_drawings")
def test_a_regression_shows_errors_in_units_beside_the_mean(run):
    import pandas as pd

    rng = np.random.default_rng(0)
    n = 400
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), unit="h")
    x = rng.normal(size=n) + np.arange(n) / 100
    y = 1000 * x + 500 * np.sin(2 * np.pi * when.hour / 24) + rng.normal(size=n)
    frame = pd.DataFrame({"x": x, "when": when, "twin": 2 * x + 1, "price": y, "leak": 3 * y})
    frame = pd.concat([frame, frame[:20]], ignore_index=True)
    page, printed = written(run, frame, "price", *QUICK)
    text = words(page)
    mean = np.abs(frame.price - frame.price.mean()).mean()
    assert f"mean absolute error (without a model {mean:,.0f})" in text
    assert "errors against predictions" in page and "growth of mean absolute error" in page
    assert "Coverage of the intervals, by prediction" in text
    assert "mean absolute error" in printed and "without a model" in printed
    assert "Column 'leak' alone almost determines the target (rank correlation 1.000)" in text
    assert "Drop 'leak' unless you know it before the prediction: --drop leak" in text
    assert "20 rows are copies of earlier rows" in text
    assert "Columns 'x' and 'twin' hold the same information" in text
    assert "The last quarter of the file differs" in text
    head = page[page.index("Which rows look wrong?") :]
    assert re.search(r'<th scope="col">(leak|x|twin)</th>', head)


@pytest.mark.usefixtures("empty_drawings")
def test_copies_and_columns_that_are_left_out_are_only_in_notes(run, monkeypatch):
    import pandas as pd

    import leansvm.cli._report as report

    seen, measured = [], report.measured
    monkeypatch.setattr(report, "measured", lambda run: seen.append(measured(run)) or seen[-1])
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    frame = pd.DataFrame({"customer_id": np.arange(200), "x": x, "twin": 2 * x, "third": -x})
    frame = frame.assign(one=1, two=2, z=rng.normal(size=200), y=np.where(x > 0, "u", "v"))
    page, _ = written(run, frame, "y", *QUICK)
    text = words(page)
    assert seen[0].importance.names == ["x", "z"] and seen[0].importance.mean[0] > 0.3
    assert text.count("hold the same information") == 1
    assert "Columns 'x', 'twin' and 'third' hold the same information: one is enough." in text
    assert "Columns 'one', 'two' are left out: the same in all rows." in text
    assert "effect of x" in page and "effect of twin" not in page
    assert '<th scope="col">twin</th>' not in page[page.index("Which rows look wrong?") :]


def test_the_warning_of_a_rare_class_comes_once(run, tmp_path):
    rng = np.random.default_rng(0)
    lines = [
        f"{v:.3f},{'yes' if i % 61 == 0 else 'no'}" for i, v in enumerate(rng.normal(size=500))
    ]
    (tmp_path / "d.csv").write_text("\n".join(["x,y", *lines]))
    done = run("train", "d.csv", "-t", "y", "-o", "m", "-s", "n_basis=10", "--cv", "5")
    assert done.exit_code == 0, done.output
    notes = " ".join(done.stderr.split())
    assert notes.count("predicts 'no' for every training row") == 1
    assert "train with --set class_weight=balanced" in notes and "predict_proba" not in notes


@pytest.mark.usefixtures("empty_drawings")
def test_the_effect_of_a_date_is_drawn_by_day_and_hour(run):
    import pandas as pd

    rng = np.random.default_rng(0)
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.permutation(600), unit="h")
    y = 10 * np.sin(2 * np.pi * when.hour / 24) + 0.1 * rng.normal(size=600)
    frame = pd.DataFrame({"when": when, "noise": rng.normal(size=600), "y": y})
    options = ("-e", "sparse", "-s", "n_basis=60", "--cv", "0")
    page, _ = written(run, frame, "y", *options)
    assert "effect of when, hour of the day" in page and "effect of when, day of the week" in page
    from leansvm import load
    from leansvm.cli._report._answers import of_dates

    data = SimpleNamespace(kinds={"when": "date"})
    model = load("m.skops")
    one = TrainingRun(data, "regression", None, make_pipeline("passthrough", model), [])
    label, hours, change = of_dates(one, frame[["when", "noise"]], "when")[1]
    assert label == "hour of the day" and list(hours) == list(range(24))
    true = 10 * np.sin(2 * np.pi * hours / 24)
    assert np.corrcoef(change, true)[0, 1] > 0.95
    some = frame[frame.when.dt.hour.between(3, 20)][["when", "noise"]]
    model.fit(some, frame.y[some.index])
    with warnings.catch_warnings():  # other hours are tried on purpose
        warnings.simplefilter("error")
        of_dates(one, some, "when")


@pytest.mark.usefixtures("empty_drawings")
def test_few_rows_are_said_to_be_few(run):
    import pandas as pd

    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    frame = pd.DataFrame({"x": x, "y": x + rng.normal(size=30)})
    text = words(written(run, frame, "y", *QUICK[:-4], "-s", "n_basis=10", "--cv", "2")[0])
    assert "The file has only 30 rows" in text and "Collect more rows first" in text


@pytest.mark.parametrize("which", ["rare", "numbers"])
def test_the_report_is_one_page_of_paper(run, rare, which):
    import shutil
    import subprocess

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed (on Debian: apt install chromium)")
    if which == "rare":
        written(run, rare, "outcome", *QUICK)
    else:
        frame = rare.assign(price=3 * rare.calls + rare.noise).drop(columns="outcome")
        written(run, frame, "price", *QUICK)
    switches = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")
    switches += ("--disable-background-networking", "--disable-component-update", "--disable-sync")
    paths = ("--user-data-dir=profile", "--print-to-pdf=r.pdf", "--no-pdf-header-footer", "r.html")
    subprocess.run([program, *switches, *paths], check=True, capture_output=True, timeout=120)
    with open("r.pdf", "rb") as file:
        assert len(re.findall(rb"/Type /Page\b", file.read())) == 1


@pytest.mark.usefixtures("empty_drawings")
def test_rows_that_look_wrong_are_wrong_and_listed_once(run):
    import pandas as pd

    x = np.random.default_rng(0).normal(size=100)
    frame = pd.DataFrame({"x": x, "y": np.where(x > 0, "up", "down")})
    wrong = pd.DataFrame({"x": [2.0, 2.0], "y": ["down", "down"]})
    page, _ = written(run, pd.concat([frame, wrong]), "y", *QUICK[:-2], "--cv", "0")
    rows = page[page.index("Which rows look wrong?") :].partition("</table>")[0]
    found = [int(row) for row in re.findall(r'<th scope="row">(\d+)</th>', rows)]
    assert found[0] == 101 and 102 not in found
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows.split("<tr>")[2:]]
    assert cells and all({row[1], row[2]} == {"up", "down"} for row in cells)


@pytest.mark.usefixtures("empty_drawings")
def test_how_small_a_model_could_be_is_not_decided_by_the_frequent_class(run):
    import pandas as pd

    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 4))
    rare = x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3] + 0.5 * rng.normal(size=800) > 2.2
    frame = pd.DataFrame(x, columns=list("abcd")).assign(y=np.where(rare, "yes", "no"))
    text = words(written(run, frame, "y", *QUICK[:-2], "--cv", "0")[0])
    size, error, usual = re.search(
        r"(\d+) points are enough: .* AUC is within a standard error \(([\d.]+)\) of ([\d.]+)", text
    ).groups()
    assert int(size) > 5 and 0 < float(error) < 0.1 and 0.7 < float(usual) <= 1
    noise = frame.assign(y=rng.permutation(frame.y))
    assert "points are enough" not in words(written(run, noise, "y", *QUICK[:-2], "--cv", "0")[0])
