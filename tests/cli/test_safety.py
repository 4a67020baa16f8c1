"""Nothing is lost when a later step fails, and no name in a file steers terminal or spreadsheet."""

import json
import os
import sys

import numpy as np
import pytest

for module in ("typer", "rich", "pyarrow", "pandas", "skops", "matplotlib", "jinja2"):
    pytest.importorskip(module)

from leansvm.cli._output import Printer  # noqa: E402
from tests.cli.test_commands import people, write_csv  # noqa: E402
from tests.loops import case  # noqa: E402
from tests.versions import random_csr  # noqa: E402


@pytest.mark.parametrize("n_rows", [2, 12], ids=["two rows", "a class of one row"])
def test_model_is_saved_though_its_accuracy_cannot_be_estimated(run, tmp_path, n_rows):
    X = np.random.default_rng(0).normal(size=(n_rows, 2))
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(n_rows) == 0)
    done = run("train", "d.npz", "-o", "m", "-e", "lssvm", "-s", "C=1", "--no-calibrate", "--json",
               "--report", "r.html")  # fmt: skip
    assert done.exit_code == 1
    assert "the accuracy cannot be estimated" in done.stderr and "only one row" in done.stderr
    assert "the model itself is saved as m" in done.stderr
    result = json.loads(done.stdout)
    assert result["evaluation"] is None and len(result["failed"]) == 1
    assert (tmp_path / "r.html").is_file()  # without the part that failed
    assert run("predict", "m", "d.npz", "-q").exit_code == 0


def test_model_is_saved_though_leave_one_out_is_interrupted(run, tmp_path, monkeypatch):
    import leansvm.cli._evaluate

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(leansvm.cli._evaluate, "leave_one_out", interrupted)
    write_csv(tmp_path / "d.csv", people(40))
    done = run("train", "d.csv", "-t", "answer", "-o", "m", "-e", "lssvm", "--cv", "loo")
    assert done.exit_code != 0
    assert run("predict", "m", "d.csv", "-q").exit_code == 0


def test_a_short_evaluation_needs_one_file(run, tmp_path, monkeypatch):
    from leansvm import persistence

    written, save = [], persistence.save
    monkeypatch.setattr(
        persistence, "save", lambda *a, **k: (written.append(k["metadata"]), save(*a, **k))
    )
    write_csv(tmp_path / "d.csv", people(40))
    for cv, files in (("loo", 1), ("2", 2)):
        written.clear()
        done = run("train", "d.csv", "-t", "answer", "-o", "m", "-e", "lssvm", "--cv", cv)
        assert done.exit_code == 0, done.stderr
        assert len(written) == files and written[-1]["evaluation"]["score"] > 0.5


def test_model_is_saved_though_the_report_fails(run, tmp_path, monkeypatch):
    import leansvm.cli._report

    def broken(*_):
        raise ValueError("no picture today")

    monkeypatch.setattr(leansvm.cli._report, "report_page", broken)
    write_csv(tmp_path / "d.csv", people(40))
    done = run("train", "d.csv", "-t", "answer", "-o", "m", "-e", "lssvm", "--report", "r.html",
               "--cv", "2")  # fmt: skip
    assert done.exit_code == 1 and not (tmp_path / "r.html").exists()
    assert "the report could not be written: d.csv: no picture today" in done.stderr
    facts = json.loads(run("info", "m", "--json").stdout)
    assert facts["metadata"]["evaluation"]["score"] > 0.5  # that was not lost either


def test_predictions_are_written_though_they_cannot_be_scored(run, tmp_path):
    rows = [[str(i), str(0.5 * i)] for i in range(10)]
    write_csv(tmp_path / "d.csv", rows, ("x", "y"))
    made = run("train", "d.csv", "-t", "y", "-o", "m", "-e", "lssvm", "--cv", "0", "--no-scale")
    assert made.exit_code == 0, made.stderr
    write_csv(tmp_path / "new.csv", [["1", "one"], ["2", "two"]], ("x", "y"))
    done = run("predict", "m", "new.csv", "-o", "p.csv")
    assert done.exit_code == 1 and "the target column is text" in done.stderr
    assert len((tmp_path / "p.csv").read_text().split()) == 3


def test_terminal_escapes_are_written_out(run, tmp_path):
    labels = np.where(np.arange(20) % 2, "\x1b[2J", "b\x9b\u202e")
    np.savez(tmp_path / "d.npz", X=np.arange(40.0).reshape(20, 2), y=labels)
    done = run("train", "d.npz", "-o", "m", "-e", "lssvm", "--cv", "0")
    assert done.exit_code == 0, done.stderr
    shown = run("info", "m").stdout
    assert "\x1b" not in shown and "\x9b" not in shown and "\u202e" not in shown
    assert r"\x1b[2J, b\x9b\u202e" in shown
    wrong = run("info", "no\x1b[31m").stderr
    assert "\x1b" not in wrong and r"no\x1b[31m" in wrong


@pytest.mark.parametrize("terminal", [True, False])
def test_data_on_a_terminal_has_no_controls(monkeypatch, capsys, terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    Printer().data("prediction\n\x1b[2J\n")
    shown = capsys.readouterr().out
    assert shown == ("prediction\n\\x1b[2J\n" if terminal else "prediction\n\x1b[2J\n")


def test_text_in_csv_is_no_formula(run, tmp_path):
    labels = np.resize(["=1+1", "+a", "-b", "@c", "plain"], 20)
    np.savez(tmp_path / "d.npz", X=np.eye(5)[np.arange(20) % 5], y=labels)
    made = run("train", "d.npz", "-o", "m", "-e", "lssvm", "--cv", "0", "--no-calibrate")
    assert made.exit_code == 0, made.stderr
    plain = run("predict", "m", "d.npz", "--no-safe-csv").stdout.split()
    assert plain[1:] == labels.tolist()
    guarded = run("predict", "m", "d.npz").stdout.split()
    assert guarded[1:6] == ["'=1+1", "'+a", "'-b", "'@c", "plain"]


def test_negative_numbers_are_no_formulas(run, tmp_path):
    np.savez(tmp_path / "d.npz", X=np.eye(2)[np.arange(8) % 2], y=np.resize([-1, 1], 8))
    assert run("train", "d.npz", "-o", "m", "-e", "lssvm", "--cv", "0").exit_code == 0
    run("predict", "m", "d.npz", "-o", "p.csv", "--safe-csv")
    assert (tmp_path / "p.csv").read_text().splitlines()[1].startswith("-1,")


@pytest.mark.parametrize("metadata", [{"classes": 3}, {"evaluation": {"score": 1}}])
def test_odd_facts_are_refused(run, tmp_path, metadata):
    from leansvm import LSSVC, persistence

    persistence.save(LSSVC().fit(np.eye(2), [0, 1]), tmp_path / "m", metadata=metadata)
    done = run("info", "m")
    assert done.exit_code == 1
    assert "m: its metadata was not written by leansvm train" in done.stderr


@pytest.mark.parametrize(
    "metadata",
    [
        {"n_features": "2"},
        {"n_features": None},
        {"n_features": 2, "columns": 3},
        {"n_features": 2, "columns": ["x", "z"]},
        {"n_features": 2, "columns": {"x": "evil", "z": "number"}},
        {"n_features": 2, "columns": {"x": ["number"], "z": {}}},
        {"n_features": 2, "target": ["y"]},
        {"n_features": 2, "reading": 3},
    ],
)
def test_odd_facts_are_refused_by_predict(run, tmp_path, metadata):
    from leansvm import LSSVC, persistence

    persistence.save(LSSVC().fit(np.eye(2), [0, 1]), tmp_path / "m", metadata=metadata)
    write_csv(tmp_path / "d.csv", [["1", "2", "0"]], ("x", "z", "y"))
    done = run("predict", "m", "d.csv")
    assert done.exit_code == 1
    assert "m: its metadata was not written by leansvm train" in done.stderr


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_models_that_cannot_predict_are_named(run, tmp_path):
    from sklearn.preprocessing import StandardScaler

    from leansvm import LSSVC, persistence

    write_csv(tmp_path / "d.csv", [["1", "2", "0"]], ("x", "z", "y"))
    kinds = {"x": "number", "z": "number"}
    for model, columns, words in (
        (StandardScaler().fit(np.eye(2)), kinds, "no attribute 'predict'"),
        (LSSVC().fit(np.eye(2), [0, 1]), {"x": "number"}, "X has 1 features"),
    ):
        with case(words=words):
            facts = {"n_features": len(columns), "columns": columns, "target": None}
            persistence.save(model, tmp_path / "m", metadata=facts)
            done = run("predict", "m", "d.csv")
            assert done.exit_code == 1 and words in done.stderr
            assert "m cannot predict the rows of d.csv" in done.stderr


def test_models_of_sparse_files_predict(run, tmp_path):
    from sklearn.datasets import dump_svmlight_file

    X = random_csr((60, 30), 0.2, np.random.default_rng(0))
    dump_svmlight_file(X, np.arange(60) % 2, str(tmp_path / "d.svm"))
    made = run("train", "d.svm", "-o", "m", "--cv", "2", "-e", "sparse", "-s", "n_basis=20")
    assert made.exit_code == 0, made.stderr
    done = run("predict", "m", "d.svm", "-o", "p.csv")
    assert done.exit_code == 0, done.stderr
    assert len((tmp_path / "p.csv").read_text().split()) == 61


def test_an_interrupt_while_a_module_is_loaded_is_an_interrupt(capsys):
    typer = pytest.importorskip("typer")
    from leansvm.cli._output import guarded

    @guarded
    def command():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("initialization failed") from error

    with pytest.raises(typer.Exit) as end:
        command()
    assert end.value.exit_code == 130 and "interrupted" in capsys.readouterr().err

    @guarded
    def other():
        raise ImportError("no such module")

    with pytest.raises(ImportError, match="no such module"):
        other()


def test_no_command_writes_over_its_input_or_its_other_output(run, tmp_path):
    from leansvm import LSSVC, persistence

    data = write_csv(tmp_path / "d.csv", people(40))
    model = tmp_path / "m.h"  # which export could be told to write
    persistence.save(LSSVC().fit(np.eye(2), [0, 1]), model)
    (tmp_path / "link.csv").symlink_to(data)
    (tmp_path / "hard.csv").hardlink_to(data)
    before = {path: path.read_bytes() for path in (data, model)}
    train = ("train", "d.csv", "-t", "answer", "-o")
    tune = ("tune", "d.csv", "-t", "answer", "-o")
    for command, words in {
        (*train, "d.csv"): "d.csv: this file is an input",
        (*train, data): "this file is an input",
        (*train, f"../{tmp_path.name}/d.csv"): "this file is an input",
        (*train, "link.csv"): "link.csv: this file is an input",
        (*train, "hard.csv"): "hard.csv: this file is an input",
        (*train, "new", "--report", "d.csv"): "d.csv: this file is an input",
        (*train, "new", "--report", "./new"): "new: this file is another output",
        (*tune, "d.csv"): "d.csv: this file is an input",
        (*tune, "new", "--report", "link.csv"): "link.csv: this file is an input",
        ("predict", "m.h", "d.csv", "-o", "d.csv"): "d.csv: this file is an input",
        ("predict", "m.h", "d.csv", "-o", "m.h"): "m.h: this file is an input",
        ("export", "m.h", "-o", "m.h"): "m.h: this file is an input",
    }.items():
        with case(command=command):
            done = run(*command)
            assert done.exit_code == 2 and words in done.stderr, done.stderr
            assert all(path.read_bytes() == content for path, content in before.items())
            assert not (tmp_path / "new").exists()


def test_two_outputs_may_go_to_a_device(run, tmp_path):
    write_csv(tmp_path / "d.csv", people(40))
    done = run("train", "d.csv", "-t", "answer", "-o", os.devnull, "-e", "lssvm", "--cv", "0",
               "--report", os.devnull)  # fmt: skip
    assert done.exit_code == 0, done.stderr


def test_a_table_with_many_copies_is_told_that_leave_one_out_is_too_low(run, tmp_path):
    rows = [f"{x},{'no' if x < 10 else 'yes'}" for x in range(20)]
    (tmp_path / "d.csv").write_text("\n".join(["x,y", *rows, *rows]) + "\n")
    done = run("train", "d.csv", "-t", "y", "-o", "m", "-e", "lssvm", "--cv", "loo")
    text = " ".join((done.stdout + done.stderr).split())
    assert "20 rows are copies of earlier rows" in text and "the scores are too low" in text
    assert "too good" not in text
