"""The check of learned scales, and of a linear kernel, on folds that they were not learned on."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks._sanity_problems import linear_classes
from leansvm.learning import guard
from leansvm.learning import learn as module
from tests.learning.test_learn import friedman, learn


def test_guard_prefers_closer_scales_where_all_features_matter_alike():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 30))
    found = learn(X, X.sum(axis=1) + 2.0 * rng.normal(size=60))
    told = found.report["guard"]
    assert set(told) == {"one", "shrunk", "learned", "chosen"}
    assert told["chosen"] != "learned"
    assert found.scales.min() > 0.2


def test_guard_keeps_scales_that_are_clearly_better():
    found = learn(*friedman(n=200, d=20)).report["guard"]
    assert found["chosen"] == "learned"
    assert found["learned"] < 0.5 * found["one"]


def test_guard_chooses_what_the_folds_say(monkeypatch):
    X, y = friedman(n=100)
    ratio = {}
    for choice in ("one", "learned", "shrunk"):
        monkeypatch.setattr(module, "choose_scales", lambda *_, choice=choice: {"chosen": choice})
        found = learn(X, y)
        ratio[choice] = found.scales[2] if choice == "one" else found.scales[4]
        assert (found.scales == 1).all() == (choice == "one")
    assert ratio["one"] == 1.0 > ratio["shrunk"] > ratio["learned"]


def test_guard_is_asked_only_where_rows_are_few(monkeypatch):
    monkeypatch.setattr(guard, "ROWS_TO_TRUST", 100)
    X, y = friedman(n=300)
    assert learn(X, y).report["guard"] is None  # 300 >= 50 * 5
    assert learn(X[:240], y[:240]).report["guard"]["chosen"] == "learned"
    assert learn(X[:90, :1], y[:90]).report["guard"] is None  # one feature


def test_guard_counts_the_rows_of_a_rare_class(monkeypatch):
    monkeypatch.setattr(guard, "ROWS_TO_TRUST", 100)
    X, y = friedman(n=500)
    for share, guarded in ((0.5, False), (0.42, False), (0.05, True), (0.95, True)):
        labels = np.where(y > np.quantile(y, 1 - share), 1.0, -1.0)
        assert (learn(X, labels).report["guard"] is not None) == guarded
    y[y < np.quantile(y, 0.9)] = 0.0  # numbers, most of them equal
    assert learn(X, y).report["guard"] is not None


@pytest.mark.parametrize("maps", [False, True])
def test_a_line_is_chosen_where_classes_that_are_combined_have_straight_borders(maps):
    # the squared error of a line is larger, and its functions alone hide classes behind others
    problem = linear_classes(np.random.default_rng(0), rows=400, classes=10, columns=5)
    (X, y), _ = problem.split()
    Y = np.where(y[:, None] == np.unique(y), 1.0, -1.0)
    told = learn(X, Y, module.MIXTURE, classes=True, maps=maps).report["guard"]
    assert told["linear"] > min(told["one"], told["shrunk"], told["learned"])
    assert (told["chosen"] == "linear") == maps


@pytest.mark.usefixtures("short_search")
def test_a_line_is_chosen_however_many_rows_there_are():
    problem = linear_classes(np.random.default_rng(0), rows=2000, classes=10, columns=5)
    (X, y), _ = problem.split()
    Y = np.where(y[:, None] == np.unique(y), 1.0, -1.0)
    told = learn(X, Y, module.MIXTURE, classes=True, maps=True).report["guard"]
    assert set(told) == {"linear", "learned", "chosen"}  # nothing is learned again
    assert told["learned"] < told["linear"] and told["chosen"] == "linear"


@pytest.mark.parametrize("maps", [False, True])
def test_no_line_is_chosen_where_the_border_is_curved(maps):
    X = np.random.default_rng(0).normal(size=(300, 3))
    radius = np.square(X).sum(axis=1)
    Y = 2.0 * np.eye(3)[np.digitize(radius, [1.5, 3.5])] - 1.0
    told = learn(X, Y, module.MIXTURE, classes=True, maps=maps).report["guard"]
    assert told["chosen"] != "linear"
