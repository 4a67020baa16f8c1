"""Running experiments: kept rows, failures, interruptions, full disks."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from leansvm.datasets import DatasetNotFoundError
from leansvm.papers import PAPERS, Observer, compare, reproduce
from leansvm.papers import fang2019 as paper_module
from leansvm.papers._experiment import Experiment, Skipped
from leansvm.papers._published import paper
from leansvm.papers._runner import named


class Watch(Observer):
    def __init__(self):
        self.kept, self.ended = None, []

    def start(self, n_jobs, n_kept):
        self.kept = n_kept

    def end(self, job, entry):
        self.ended.append((job.id, entry["status"]))


@pytest.fixture
def measured(monkeypatch):
    """Replace the experiment of fang2019's Table 1; return the rows it was asked for."""
    asked = []

    def measure(row, run):
        asked.append(row.name)
        if row.method == "LSSVM-SBF":
            raise Skipped("no such thing")
        if row.method == "LR-LSSVM-abs":
            raise ZeroDivisionError("oops")
        if row.method == "LR-LSSVM-square":
            raise DatasetNotFoundError("the data set x is not on this machine")
        return {"test_error": [float(seed) for seed in run.trials(4, quick=2)]}

    fake = Experiment("fang2019", ("table-1",), measure)
    monkeypatch.setattr(paper_module, "table_1", fake)
    return asked


FIRST = "fang2019/table-1/LSSVM-Gaussian, synthetic, sigma 0.5"
N_ROWS = len(paper("fang2019").tables["table-1"].rows)


def test_every_row_is_stored_with_its_outcome(measured, tmp_path):
    reproduce(["fang2019"], tables=["table-1"], out=tmp_path)
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert len(rows) == N_ROWS
    assert rows["fang2019/table-1/LSSVM-SBF, synthetic"]["reason"] == "no such thing"
    assert rows["fang2019/table-1/LR-LSSVM-abs, synthetic"]["reason"] == "ZeroDivisionError: oops"
    assert rows["fang2019/table-1/LR-LSSVM-abs, synthetic"]["status"] == "failed"
    assert rows["fang2019/table-1/LR-LSSVM-square, synthetic"]["status"] == "skipped"
    first = rows["fang2019/table-1/LSSVM-Gaussian, synthetic, sigma 0.5"]
    assert first["metrics"]["test_error"] == {"mean": 1.5, "std": 1.25**0.5, "n": 4}


def test_finished_rows_are_kept_and_the_others_tried_again(measured, tmp_path):
    reproduce(["fang2019"], tables=["table-1"], out=tmp_path)
    measured.clear()
    watch = Watch()
    reproduce(["fang2019"], tables=["table-1"], out=tmp_path, observer=watch)
    assert watch.kept == N_ROWS - 3
    assert len(measured) == 3
    measured.clear()
    reproduce(["fang2019"], tables=["table-1"], out=tmp_path, fresh=True)
    assert len(measured) == N_ROWS


def test_other_options_measure_again(measured, tmp_path):
    reproduce(["fang2019"], tables=["table-1"], out=tmp_path)
    measured.clear()
    store = reproduce(["fang2019"], tables=["table-1"], out=tmp_path, seeds=5)
    assert len(measured) == N_ROWS
    assert store.rows[FIRST]["metrics"]["test_error"]["n"] == 5


@pytest.mark.parametrize("less", [{"quick": True}, {"seeds": 3}, {"quick": True, "seeds": 1}])
@pytest.mark.parametrize("fresh", [False, True])
def test_no_row_is_replaced_by_one_with_fewer_trials(measured, tmp_path, less, fresh):
    options = {"tables": ["table-1"], "out": tmp_path}
    before = reproduce(["fang2019"], **options).rows
    watch = Watch()
    after = reproduce(["fang2019"], **options, **less, fresh=fresh, observer=watch).rows
    done = {name: row for name, row in before.items() if row["status"] == "done"}
    assert {name: after[name] for name in done} == done
    assert watch.kept == (0 if fresh else len(done))
    if fresh:
        assert dict(watch.ended)[FIRST] == "kept"


def test_a_result_is_not_replaced_by_a_skipped_or_failed_row(measured, tmp_path):
    options = {"tables": ["table-1"], "out": tmp_path}
    store = reproduce(["fang2019"], **options)
    bad = [name for name, row in store.rows.items() if row["status"] != "done"]
    for name in bad:
        store.put("rows", name, store.rows[FIRST] | {"run": {"quick": False, "seeds": 1}})
    watch = Watch()
    after = reproduce(["fang2019"], **options, fresh=True, observer=watch).rows
    assert all(after[name]["status"] == "done" for name in bad)
    assert [status for name, status in watch.ended if name in bad] == ["kept"] * 3


def test_an_interrupted_run_keeps_what_it_has(measured, tmp_path):
    class Stop(Watch):
        def end(self, job, entry):
            super().end(job, entry)
            if len(self.ended) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(["fang2019"], tables=["table-1"], out=tmp_path, observer=Stop())
    kept = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert len(kept) == 2
    watch = Watch()
    reproduce(["fang2019"], tables=["table-1"], out=tmp_path, observer=watch)
    assert watch.kept == 2
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert len(rows) == N_ROWS and {name: rows[name] for name in kept} == kept


def test_a_full_disk_leaves_the_old_file(measured, tmp_path, monkeypatch):
    reproduce(["fang2019"], tables=["table-1"], out=tmp_path)
    before = (tmp_path / "results.json").read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        reproduce(["fang2019"], tables=["table-1"], out=tmp_path, fresh=True)
    assert (tmp_path / "results.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_rows_are_chosen_by_their_names(measured, tmp_path):
    names = [row.name for row in paper("fang2019").tables["table-1"].rows]
    exact = next(name for name in names if any(name in other for other in names if other != name))
    options = {"tables": ["table-1"], "out": tmp_path}
    reproduce(["fang2019"], rows=[exact], **options)
    assert measured == [exact]
    measured.clear()
    reproduce(["fang2019"], rows=[f"fang2019/table-1/{names[1]}", names[0]], **options)
    assert set(measured) <= set(names[:2])
    measured.clear()
    reproduce(["fang2019"], rows=["lr-lssvm"], fresh=True, **options)
    assert measured == [name for name in names if "LR-LSSVM" in name]
    assert len(measured) > 1
    with pytest.raises(ValueError, match="no row 'nothing of the kind'"):
        reproduce(["fang2019"], rows=["nothing of the kind"], **options)


@pytest.mark.parametrize(
    ("papers", "tables", "message"),
    [
        (["smith"], None, "unknown paper 'smith'"),
        (["fang2019"], ["table-7"], "no table or figure 'table-7'"),
    ],
)
def test_unknown_names(papers, tables, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        reproduce(papers, tables=tables, out=tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}', '{"rows": {}}'])
def test_a_file_that_is_not_ours_is_not_overwritten(text, tmp_path):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ValueError, match="not a results file"):
        reproduce(["fang2019"], tables=["table-1"], out=tmp_path)
    assert (tmp_path / "results.json").read_text() == text


# ------------------------------------------------------------------ as a user would run it


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Return what runs the command in this process, with rows in an empty folder."""
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from leansvm.cli._app import app

    def run(*arguments):
        given = ["reproduce", *arguments, "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["leansvm", *given])
        return CliRunner().invoke(app, given)

    return run


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A machine without data sets."""
    monkeypatch.setenv("LEANSVM_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


def test_the_command_reproduces_a_table(command, tmp_path):
    done = command("peng2016", "--table", "table-1", "--quick")
    assert done.exit_code == 0, done.stderr
    assert "3 of 4 rows and figures done, 1 skipped" in done.stdout
    assert done.stdout.splitlines()[0].endswith("; 1 trial")
    assert "SVMlight is another program" in " ".join(done.stderr.split())
    page = (tmp_path / "report.html").read_text()
    assert page.count('<span class="badge reached">reached</span>') == 3
    assert page.count('<tr data-verdict="reached">') == 3
    made = re.search(r"<p>Made by <code>(.*?)</code> with (.*?)</p>", page)
    assert made[1] == f"leansvm reproduce peng2016 --table table-1 --quick --out {tmp_path}"
    assert re.fullmatch(r"leansvm \S+, 20\d\d-\d\d-\d\d \d\d:\d\d UTC, seeds 0, 1, .*\.", made[2])
    called = "L2SVC(C=10000, calibrate=False, kernel=&#39;linear&#39;, solver=&#39;active-set&#39;)"
    assert f"<li>RLSSVM, 4-point toy: <code>{called}</code></li>" in page
    again = command("peng2016", "--table", "table-1", "--quick")
    assert "3 of 4 rows and figures done (3 of them before), 1 skipped" in again.stdout


def test_the_command_runs_one_row(command, tmp_path):
    done = command("peng2016", "--row", "rlssvm, 4-point TOY")
    assert done.exit_code == 0, done.stderr
    assert "1 of 1 rows and figures done" in done.stdout
    stored = json.loads((tmp_path / "results.json").read_text())
    assert list(stored["rows"]) == ["peng2016/table-1/RLSSVM, 4-point toy"]
    assert "RLSSVM, 4-point toy" in (tmp_path / "report.html").read_text()
    done = command("peng2016", "--row", "RLSVM, 4-point")
    assert done.exit_code == 2
    assert "did you mean 'RLSSVM, 4-point toy'" in " ".join(done.stderr.split())


@pytest.mark.usefixtures("no_data")
def test_the_command_says_what_data_it_lacks(command):
    done = command("peng2016", "--table", "table-2")
    assert done.exit_code == 1
    errors = " ".join(done.stderr.split())
    assert "splice is not on this machine" in errors
    assert re.search(r"get them with: leansvm datasets download (\w+ )*splice", errors)
    assert "0 of 5 rows" in done.stdout and "skipped; report:" in done.stdout


@pytest.mark.usefixtures("no_data")
def test_single_missing_data_sets_are_a_note_and_no_failure(command):
    done = command("peng2016", "--table", "table-1", "--table", "table-2", "--quick")
    assert done.exit_code == 0, done.stderr
    assert "3 of 9 rows and figures done" in done.stdout
    assert "note: data sets that are not on this machine: " in " ".join(done.stderr.split())


def test_the_command_refuses_unknown_names(command):
    done = command("smith")
    assert done.exit_code == 2
    assert "unknown paper 'smith'; choose from fang2019" in " ".join(done.stderr.split())


def test_control_c_leaves_what_is_done(tmp_path):
    pytest.importorskip("typer")
    command = [sys.executable, "-m", "leansvm.cli", "reproduce", "zhou2013", "--table", "table-2"]
    process = subprocess.Popen(
        [*command, "--quick", "--seeds", "1", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        results = tmp_path / "results.json"
        deadline = time.monotonic() + 60
        while not results.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "run the same command again to continue" in " ".join(errors.split())
    stored = json.loads(results.read_text())["rows"]
    assert 1 <= len(stored) < 40
    assert (tmp_path / "report.html").exists()


def test_the_command_prints_the_row_beside_the_published_one(command):
    done = command("peng2016", "--row", "RLSSVM, 4-point toy")
    first = done.stdout.splitlines()[0]
    assert first.startswith("reached: peng2016/table-1/RLSSVM, 4-point toy; support vector 1 = 2 ")
    assert "coefficient 2 = 0.9999 (paper: 0.9999)" in first
    facts = json.loads(command("peng2016", "--row", "RLSSVM, 4-point toy", "--json").stdout)
    (one,) = facts["compared"]
    assert one["verdict"] == "reached"
    assert one["published"]["bias"] == [-0.9999, None]
    assert one["measured"]["bias"][0] == pytest.approx(-0.9999, abs=1e-6)


def test_the_command_lists_rows_and_runs_none(command, tmp_path):
    done = command("peng2016", "zhou2013", "--row", "toy", "--list")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("# peng2016/table-1: ")
    assert "peng2016/table-1/RLSSVM, 4-point toy" in lines
    figures = command("zhou2013", "--table", "fig-1", "--list").stdout
    assert figures.startswith("# zhou2013/fig-1 (run it with --table fig-1): ")
    assert not (tmp_path / "results.json").exists()
    assert command("peng2016", "--row", "nonsense", "--list").exit_code == 2
    everything = command("--list").stdout
    assert all(f"# {name}/table-1: " in everything for name in PAPERS)
    none = command()
    assert none.exit_code == 2 and "name one or more papers" in " ".join(none.stderr.split())


def test_a_full_result_is_kept_and_the_command_says_so(command, measured):
    assert command("fang2019", "--table", "table-1").exit_code == 0
    quick = command("fang2019", "--table", "table-1", "--quick")
    assert f"{N_ROWS - 3} of {N_ROWS} rows are there already, with at least as" in quick.stderr
    again = command("fang2019", "--table", "table-1", "--quick", "--fresh", "--row", "sigma 0.5")
    words = " ".join(again.stderr.split())
    assert f"kept: {FIRST}: the stored one has 4 trials, this run has 2" in words
    assert "1 of 1 rows and figures done (1 of them before)" in again.stdout
    assert "(paper: 11.40 %); 4 trials" in again.stdout


@pytest.mark.usefixtures("no_data")
def test_rows_with_the_same_reason_share_a_line_that_counts_them(command):
    done = command("peng2016", "--table", "table-4")
    lines = [" ".join(line.split()) for line in done.stderr.splitlines()]
    assert any(line.startswith("skipped: ") and " and the next " in line for line in lines)


def test_similar_names_are_suggested_once():
    ids = ["peng2016/table-4/RLSSVM, Splice", "peng2016/table-9/RLSSVM, Splice"]
    with pytest.raises(ValueError, match=r"did you mean 'RLSSVM, Splice'[?]"):
        named("RLSVM, Splice", ids)


def test_rows_are_compared_with_the_published_ones(measured, tmp_path):
    reproduce(["fang2019"], tables=["table-1"], out=tmp_path)
    found = compare(["fang2019"], tables=["table-1"], out=tmp_path)
    assert len(found) == N_ROWS
    first = found[0]
    assert (first.verdict, first.published) == (
        "better by more than 2 points",
        {"test_error": (11.4, None), "model_size": (250.0, None)},
    )
    assert "test error = 1.50 ±1.12 % (paper: 11.40 %)" in str(first)
    assert str(found[6]) == "not run: fang2019/table-1/LSSVM-SBF, synthetic; no such thing"
    assert [one.id for one in compare(["fang2019"], rows=["sigma 0.5"], out=tmp_path)] == [first.id]
