"""What a fit says while it runs: lines, shares of the work, and what a time limit has cut."""

import time
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from leansvm import LSSVC, LowRankLSSVC, ReducedSVC, SparseLSSVC, SparseLSSVR
from leansvm._phases import Phases, Watch, out_of_time, step, watching
from leansvm._sklearn import HAS_CALLBACKS

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3))
y = np.sin(2 * X[:, 0]) + X[:, 1] > 0


@contextmanager
def watched_by(watch):
    token = watching.set(watch)
    try:
        yield
    finally:
        watching.reset(token)


class Shares:
    """Keeps the number of percents at every step."""

    def __init__(self):
        self.names = []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.names.append(context.task_name)


def test_the_share_of_the_plan_only_grows():
    told, said, phases = [], [], Phases()
    watch = Watch(tell=told.append, say=said.append, plan={"a": 1.0, "b": 2.0, "c": 1.0})
    with watched_by(watch):
        with phases("outer"):
            with phases("a"):
                step(1.0)  # half of it
                assert watch.share == pytest.approx(0.5 / 4)
            for _ in range(4):  # of no planned phase
                step(0.25)
            assert watch.share == pytest.approx(1 / 4)
        with phases("c"):  # "b" does not come
            step(0.0, reached=0.5)
            step(1.0)  # does not count beside what is known
            assert watch.share == pytest.approx(3.5 / 4)
            time.sleep(0.01)
    assert watch.share == 1.0 and told == sorted(told) and told[-1] == 1.0
    assert [line.split()[0] for line in said] == ["c"]  # the others took no time
    step(1.0)  # without a watch nothing happens
    assert not out_of_time()


def test_time_is_up_before_a_step_that_would_end_too_late():
    watch, phases = Watch(limit=10.0), Phases()
    with watched_by(watch), phases("grow"):
        watch.start -= 4.0
        assert not out_of_time(growth=1.0)  # four seconds more
        watch.start -= 2.0
        assert not out_of_time(growth=1.0)
        watch.start -= 1.5
        assert out_of_time(growth=4.0) and watch.cut == ["grow"]
        assert out_of_time(0.5, 0.0)


@pytest.mark.parametrize(
    ("model", "phases"),
    [
        (SparseLSSVC(random_state=0), {"learn", "sizes", "solve"}),
        (SparseLSSVR(kernel="rbf", gamma=0.5, n_basis=200, random_state=0), {"sums", "solve"}),
        (ReducedSVC(n_basis=50, random_state=0), {"solve"}),
        (LSSVC(), {"solve"}),
        (LowRankLSSVC(n_basis=2, max_iter=5, tol=1.0), {"learn", "solve"}),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("short_search")
def test_verbose_prints_a_line_for_each_phase(model, phases, capsys):
    silent = model.fit(X, y).predict(X)
    assert capsys.readouterr().out == ""
    again = model.set_params(verbose=1).fit(X, y).predict(X)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(f"{type(model).__name__}: ") for line in lines)
    said = {line.split()[1] for line in lines}
    assert said <= model.fit_report_["seconds"].keys() | {"learn"}
    slow = {name for name, spent in model.fit_report_["seconds"].items() if spent > 0.02}
    assert slow & phases <= said
    assert_array_equal(silent, again)


@pytest.mark.parametrize("machine", [SparseLSSVC, SparseLSSVR, ReducedSVC])
def test_a_time_limit_ends_early_and_says_so(machine):
    model = machine(kernel="rbf", gamma="learn", n_basis="auto", random_state=0)
    whole = model.fit(X, y)
    assert whole.fit_report_["ended_early"] == []
    short = machine(**model.get_params()).set_params(time_limit=1e-6)
    with pytest.warns(UserWarning, match=r"time_limit=1e-06 s ended learn and"):
        short.fit(X, y)
    assert "learn" in short.fit_report_["ended_early"]
    assert short.fit_report_["learning"]["stopped"]
    assert short.n_support_ < whole.n_support_ or machine is ReducedSVC
    assert np.isfinite(short.predict(X).astype(float)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ample = machine(**model.get_params()).set_params(time_limit=1000.0).fit(X, y)
    assert_array_equal(ample.predict(X), whole.predict(X))


@pytest.mark.parametrize("bad", [0, -1.0, "soon"])
def test_a_time_limit_must_be_positive(bad):
    with pytest.raises(ValueError, match="time_limit"):
        SparseLSSVC(time_limit=bad).fit(X, y)


@pytest.mark.skipif(not HAS_CALLBACKS, reason="needs scikit-learn 1.9")
@pytest.mark.parametrize("machine", [SparseLSSVC, ReducedSVC, LSSVC])
def test_callbacks_hear_of_percents_between_the_steps(machine):
    shares = Shares()
    machine(kernel="rbf", gamma="learn").set_callbacks(shares).fit(X, y)
    names = shares.names
    assert names.count("percent") == 100 and names[-2:] == ["steps", "fit"]
    first = names[: len(names) - names[::-1].index("learning-step")]
    assert 10 < first.count("percent") < 100  # during learning


class EndsLearning(Shares):
    """Asks to stop at the first step of learning."""

    def on_fit_task_end(self, estimator, context):
        return context.task_name == "learning-step"


@pytest.mark.skipif(not HAS_CALLBACKS, reason="needs scikit-learn 1.9")
def test_the_report_names_the_phase_that_a_callback_ended():
    model = SparseLSSVC(gamma="learn", n_basis=50, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of time limits there is none
        model.set_callbacks(EndsLearning()).fit(X, y)
    assert model.fit_report_["ended_early"] == ["learn"]
    assert model.fit_report_["learning"]["stopped"]
