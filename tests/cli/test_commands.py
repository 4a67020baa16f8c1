"""The command line as a user runs it: files in a folder, processes, exit codes, messages."""

import csv
import json
import os
import pickle
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

for module in ("typer", "rich", "pyarrow", "pandas", "skops", "matplotlib", "jinja2", "pooch"):
    pytest.importorskip(module)

from leansvm import __version__, estimators  # noqa: E402

COMMAND = [sys.executable, "-m", "leansvm.cli"]
ENVIRONMENT = {
    **os.environ,
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    "COLUMNS": "200",
    "NO_COLOR": "1",
}


def leansvm(*arguments, folder, **options):
    """Run a command in a folder, as from a shell."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, **options
    )


def people(n=120, seed=0):
    """Rows with numbers, categories and holes; the class depends on both kinds."""
    rng = np.random.default_rng(seed)
    age, city = rng.integers(20, 70, n), rng.choice(["Oslo", "Rome", "Paris"], n)
    height = rng.normal(170, 10, n).round(1)
    answer = np.where((age > 45) ^ (city == "Rome"), "yes", "no")
    rows = [list(map(str, row)) for row in zip(age, height, city, answer, strict=True)]
    rows[3][0], rows[5][1], rows[7][2] = "", "NA", "?"
    return rows


def write_csv(path, rows, header=("age", "height", "city", "answer")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a data file, a model trained on it and the report of that run."""
    folder = tmp_path_factory.mktemp("cli")
    write_csv(folder / "people.csv", people())
    done = leansvm(
        "train", "people.csv", "-t", "answer", "-o", "model.skops", "--report", "report.html",
        folder=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout and "saved as" in done.stdout
    assert done.stderr.startswith(
        "people.csv: 120 rows, 3 features, classification\n2 numbers, 1 category; target: no/yes\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == [
        "model.skops", "people.csv", "report.html",
    ]  # fmt: skip
    return folder


# ---------------------------------------------------------------------------- processes


def test_the_report_says_how_it_was_made(folder):
    page = (folder / "report.html").read_text("utf-8")
    command = "leansvm train people.csv -t answer -o model.skops --report report.html"
    assert f"Made by: {command}</p>" in page
    assert re.search(r"<p>On 20\d\d-\d\d-\d\d at \d\d:\d\d", page)
    assert re.search(r"leansvm \S+, scikit-learn \d", page)


def test_predict_writes_csv_and_mentions_a_new_category(folder, tmp_path):
    rows = people(40, seed=1)
    rows[0][2] = "Lima"
    write_csv(tmp_path / "new.csv", rows)
    done = leansvm("predict", folder / "model.skops", "new.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "column 'city': 'Lima' did not occur in training" in done.stderr
    assert "accuracy" in done.stderr
    table = list(csv.DictReader(done.stdout.splitlines()))
    assert len(table) == 40
    assert list(table[0]) == ["prediction", "probability_no", "probability_yes"]
    right = [row["prediction"] == true[3] for row, true in zip(table, rows, strict=True)]
    assert np.mean(right) > 0.8


@pytest.mark.parametrize(
    ("content", "target", "message"),
    [
        ("age,city\n1,Oslo\n", "agee", "no column 'agee'; did you mean 'age'? the file has"),
        ("", "age", "data.csv: the file is empty"),
        ("a,b\n1,2\n3\n4,5\n", "a", "data.csv, line 3: 1 values, but the header has 2 columns"),
    ],
    ids=["wrong target", "empty file", "ragged"],
)
def test_bad_data_is_named_in_one_line(tmp_path, content, target, message):
    (tmp_path / "data.csv").write_text(content)
    done = leansvm("train", "data.csv", "-t", target, "-o", "m", folder=tmp_path)
    assert done.returncode == (2 if target == "agee" else 1)
    assert done.stderr.startswith("error: data.csv") and message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_missing_column_is_named(folder, tmp_path):
    write_csv(tmp_path / "new.csv", [row[:2] for row in people(10)], ("age", "height"))
    done = leansvm("predict", folder / "model.skops", "new.csv", folder=tmp_path)
    assert done.returncode == 1
    assert (
        "new.csv: the model needs the column 'city', which this file does not have" in done.stderr
    )


def test_corrupt_model_is_refused(folder, tmp_path):
    content = (folder / "model.skops").read_bytes()
    (tmp_path / "model.skops").write_bytes(content[: len(content) // 2])
    done = leansvm("info", "model.skops", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: model.skops is damaged or not complete: copy it again")
    (tmp_path / "model.skops").write_bytes(pickle.dumps({"a": 1}))
    done = leansvm("predict", "model.skops", "model.skops", "-o", "p.csv", folder=tmp_path)
    assert done.returncode == 1
    assert "model.skops is a pickle, not a model file" in done.stderr


def test_a_missing_model_file_is_named_like_a_missing_data_file(tmp_path):
    done = leansvm("info", "model.skops", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "error: model.skops: there is no such file\n")


def test_the_package_runs_as_a_program():
    command = [sys.executable, "-m", "leansvm", "--version"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


@pytest.fixture
def full_disk(tmp_path):
    """A file that cannot be written for want of space: on a tiny file system, or /dev/full."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(place)]
    mounted = os.name == "posix" and hasattr(os, "geteuid") and os.geteuid() == 0
    if mounted:
        try:
            mounted = subprocess.run(mount, capture_output=True).returncode == 0
        except FileNotFoundError:
            mounted = False
    if mounted:
        (place / "filler").write_bytes(b"x" * 4096)
        yield place / "out.skops"
        leftovers = [path.name for path in place.iterdir()]
        subprocess.run(["umount", str(place)], check=True)
        assert leftovers == ["filler"]
    elif Path("/dev/full").exists():
        yield Path("/dev/full")
    else:
        pytest.skip("no way to make a full disk here")


def test_full_disk_is_said(folder, tmp_path, full_disk):
    done = leansvm(
        "train", folder / "people.csv", "-t", "answer", "-o", full_disk, "--cv", "0",
        "-s", "kernel=rbf", "-s", "gamma=0.1", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"error: {full_disk}: no space left on the device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX systems")
def test_interrupt_leaves_nothing_behind(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 5)).round(3)
    rows = [[*map(str, x), "yn"[int(x[0] * x[1] > 0)]] for x in X]
    write_csv(tmp_path / "big.csv", rows, (*"abcde", "y"))
    command = [*COMMAND, "tune", "big.csv", "-t", "y", "-o", "m.skops", "--cv", "20"]
    child = subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    try:
        assert "1,500 rows" in child.stderr.readline()
        assert child.stderr.readline() == "5 numbers; target: n/y\n"
        time.sleep(0.5)
        for last in (False, False, True):
            child.send_signal(signal.SIGINT)
            try:  # it takes a second where the machine is idle
                _, stderr = child.communicate(timeout=20)
                break
            except subprocess.TimeoutExpired:  # Python drops one that comes in a destructor
                assert not last, "it was not interrupted"
    finally:
        child.kill()
    assert child.returncode == 130, stderr
    assert stderr == "error: interrupted\n"
    assert [path.name for path in tmp_path.iterdir()] == ["big.csv"]


# ---------------------------------------------------------------------------- in this process


@pytest.mark.usefixtures("empty_drawings", "few_points")
def test_commands_of_the_guide_run_in_an_empty_folder(run, tmp_path):
    guide = Path(__file__).parents[2] / "docs" / "user_guide" / "cli.md"
    blocks = re.findall(r"^```sh\n(.*?)^```", guide.read_text("utf-8"), re.S | re.M)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(lines) > 10
    for program, *arguments in lines:
        if program == "python":
            exec(arguments[1], {})
        else:
            few = ["--cv", "2"] if arguments[0] in ("train", "tune") else []  # spares time
            done = run(*arguments, *few * ("--cv" not in arguments))
            assert done.exit_code == 0, (arguments, done.stderr, done.exception)
    assert (tmp_path / "predictions.parquet").is_file() and (tmp_path / "tuned.html").is_file()


def test_info_shows_how_the_model_was_made(folder, run):
    shown = run("info", folder / "model.skops")
    assert shown.exit_code == 0
    for text in ("LSSVC", "answer", "no, yes", "city (category)", "leansvm.load"):
        assert text in shown.stdout
    facts = json.loads(run("info", folder / "model.skops", "--json").stdout)
    assert facts["metadata"]["rows"] == 120
    assert facts["metadata"]["evaluation"]["score"] > 0.8
    assert facts["metadata"]["columns"] == {
        "age": "number", "height": "number", "city": "category",
    }  # fmt: skip


def test_model_loads_in_python_with_its_preprocessing(folder):
    import pandas as pd

    from leansvm import persistence

    model = persistence.load(folder / "model.skops")
    frame = pd.read_csv(folder / "people.csv", na_values=["?"])
    assert np.mean(model.predict(frame) == frame["answer"]) > 0.9


def test_predict_loads_only_what_it_needs(folder, tmp_path):
    """skops would load all of scikit-learn, numba half a second of LLVM."""
    code = (
        "import sys; from leansvm.cli import main; sys.argv[0] = 'leansvm'\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "late = {'skops', 'numba', 'torch', 'matplotlib', 'jinja2', 'leansvm.papers'}\n"
        "assert not late & set(sys.modules)"
    )
    command = ["predict", folder / "model.skops", folder / "people.csv", "-o", tmp_path / "p.csv"]
    subprocess.run([sys.executable, "-c", code, *map(str, command)], check=True)
    assert (tmp_path / "p.csv").is_file()


def test_train_loads_and_looks_through_only_what_it_needs(folder, tmp_path):
    """Modules are not searched for garbage while they are loaded; the fit's own objects are."""
    code = (
        "import gc, sys; from leansvm.cli import main, _wait; sys.argv[0] = 'leansvm'\n"
        "wait, seen = _wait.wait_for, []\n"
        "def watched(work, *args):\n"
        "    seen.append(gc.isenabled())\n"
        "    found = wait(work, *args)\n"
        "    seen.extend([gc.isenabled(), gc.get_freeze_count() > 10_000])\n"
        "    return found\n"
        "_wait.wait_for = watched\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert seen == [False, True, True], seen\n"
        "late = {'skops', 'sklearn.svm', 'torch', 'matplotlib', 'jinja2', 'leansvm.papers'}\n"
        "assert not late & set(sys.modules), late & set(sys.modules)"
    )
    out = tmp_path / "m.skops"
    command = ["train", folder / "people.csv", "-t", "answer", "-o", out, "--cv", "0"]
    subprocess.run([sys.executable, "-c", code, *map(str, command)], check=True)
    assert out.is_file()


def test_other_commands_collect_garbage_as_usual(folder):
    code = (
        "import gc, sys; from leansvm.cli import main; sys.argv[0] = 'leansvm'\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert gc.isenabled()"
    )
    command = [sys.executable, "-c", code, "info", str(folder / "model.skops")]
    subprocess.run(command, check=True)


def test_reproduce_names_all_papers(run):
    from leansvm.papers import PAPERS

    shown = " ".join(run("reproduce", "--help").stdout.split())
    assert all(name in shown for name in PAPERS)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (["done", "skipped"], 0),
        (["done", "failed"], 0),
        (["skipped", "skipped"], 1),
        (["failed"], 1),
        (["done"], 0),
    ],
)
def test_reproduce_fails_only_where_nothing_could_be_run(run, monkeypatch, rows, code):
    from leansvm import papers

    def reproduce(names, observer, **options):
        observer.start(len(rows), 0)
        for status in rows:
            entry = {"status": status, "reason": "no reason"}
            entry |= {"needs": "vehicle"} if status == "skipped" else {}
            observer.end(papers._runner.Job.__new__(papers._runner.Job), entry)

    monkeypatch.setattr(papers._runner.Job, "id", "table-1", raising=False)
    monkeypatch.setattr(papers, "reproduce", reproduce)
    monkeypatch.setattr(papers, "write_report", lambda out: out / "report.html")
    done = run("reproduce", "all", "--quick")
    assert done.exit_code == code
    last = done.stderr.strip().splitlines()[-1:]
    assert ("leansvm datasets download vehicle" in "".join(last)) == ("skipped" in rows)


def test_training_needs_no_skops(folder, run, tmp_path, monkeypatch):
    from leansvm import persistence

    monkeypatch.setattr(persistence, "_skops", lambda: pytest.fail("skops was asked"))
    write_csv(tmp_path / "rows.csv", people())
    settings = ("--set", "kernel=rbf", "--set", "gamma=0.1", "--cv", "0")
    done = run("train", "rows.csv", "-t", "answer", "-o", "m.skops", *settings)
    assert done.exit_code == 0, done.output
    assert run("predict", "m.skops", "rows.csv").exit_code == 0


def test_strict_refuses_new_categories(folder, run, tmp_path):
    write_csv(tmp_path / "new.csv", [["30", "170", "Lima", "no"]])
    done = run("predict", folder / "model.skops", "new.csv", "--strict")
    assert done.exit_code == 1
    assert "column 'city': 'Lima' did not occur in training" in done.stderr


def test_text_where_training_had_numbers_is_named(folder, run, tmp_path):
    write_csv(tmp_path / "new.csv", [["30", "170", "Rome"], ["old", "170", "Rome"]],
              ("age", "height", "city"))  # fmt: skip
    done = run("predict", folder / "model.skops", "new.csv")
    assert done.exit_code == 1
    assert "new.csv, line 3, column 'age': 'old' is not a number" in done.stderr


def test_predictions_as_parquet_and_json(folder, run, tmp_path):
    from pyarrow import parquet

    done = run("predict", folder / "model.skops", folder / "people.csv", "-o", "out.parquet", "-q")
    assert done.exit_code == 0 and done.stdout == "" and done.stderr == ""
    table = parquet.read_table("out.parquet")
    assert table.column_names == ["prediction", "probability_no", "probability_yes"]
    result = json.loads(
        run("predict", folder / "model.skops", folder / "people.csv", "--json").stdout
    )
    assert result["prediction"] == table["prediction"].to_pylist()
    assert result["rows"] == 120 and result["accuracy"] > 0.9


def test_json_of_a_training_run(run, tmp_path):
    write_csv(tmp_path / "d.csv", people(60))
    done = run("train", "d.csv", "-t", "answer", "-o", "m", "--json", "-e", "sparse",
               "-s", "n_basis=20", "-s", "C=10", "-s", "gamma=scale", "--cv", "3",
               "--no-calibrate")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert done.stderr == ""
    assert result["estimator"] == "SparseLSSVC" and result["support"] == 20
    assert result["parameters"]["C"] == 10 and result["parameters"]["calibrate"] is False
    assert len(result["evaluation"]["folds"]) == 3
    assert set(result["seconds"]) == {"read", "fit", "evaluate"}


def test_leave_one_out_of_the_command_is_that_of_refitting(run, tmp_path):
    from sklearn.model_selection import LeaveOneOut, cross_val_predict

    from leansvm import LSSVC, persistence

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1], [-0.5, 0.5])
    np.savez(tmp_path / "d.npz", X=X, y=y)
    done = run("train", "d.npz", "-o", "m", "-e", "lssvm", "--cv", "loo", "--json", "--no-scale")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)["evaluation"]
    model = persistence.load(tmp_path / "m")
    refitted = cross_val_predict(LSSVC(model.C_, gamma=model.gamma_), X, y, cv=LeaveOneOut())
    assert found["method"] == "exact leave-one-out"
    assert found["score"] == pytest.approx(np.mean(refitted == y))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cv", "loo", "-e", "reduced"], "ReducedSVC has no closed-form leave-one-out"),
        (["--cv", "loo", "-s", "C=3"], "--cv loo chooses C by leave-one-out"),
        (["--cv", "loo", "-e", "lssvm", "-s", "C=1.0"], "--cv loo chooses C by leave-one-out"),
        (["--cv", "loo", "-e", "low-rank", "-s", "C=1"], "--cv loo chooses C by leave-one-out"),
        (["-e", "forest"], "--estimator forest: unknown; choose auto, lssvm"),
        (["-e", "l2", "--task", "regression"], "--estimator l2 is only for classification"),
        (["-s", "gama=1"], "LSSVC has no parameter gama; did you mean gamma?"),
        (["-s", "gamma"], "--set gamma: write it as NAME=VALUE"),
        (["-s", "gamma=-1"], "error: The 'gamma' parameter of SparseLSSVC must be"),
        (["--cv", "1"], "--cv 1: give a number of folds (2 or more), loo, auto, or 0"),
        (["--cv", "6"], "--cv 6: the smallest class has 5 rows, so there can be at most 5 folds"),
        (["--cv", "11", "--task", "regression"], "--cv 11: there are 10 rows, so there can be"),
        (["-o", "nowhere/m"], "nowhere/m: there is no folder nowhere"),
        (["-o", "."], ".: this is a folder"),
        (["--drop", "c"], "leave out --target, --drop and --column"),
        (["--column", "c"], "--column c: write it as NAME=KIND, where KIND is one of number, cat"),
        (["--column", "c=text"], "where KIND is one of number, category, date, time, yes/no"),
    ],
)
def test_wrong_options_of_train(run, tmp_path, arguments, message):
    np.savez(tmp_path / "d.npz", X=np.arange(20.0).reshape(10, 2), y=np.arange(10) % 2)
    done = run("train", "d.npz", "-o", "m", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["d.npz"]


def test_leave_one_out_leaves_no_C_to_a_grid(run, tmp_path):
    np.savez(tmp_path / "d.npz", X=np.arange(20.0).reshape(10, 2), y=np.arange(10) % 2)
    done = run("tune", "d.npz", "-o", "m", "-e", "lssvm", "--cv", "loo", "--grid", "C=1,10")
    assert done.exit_code == 2
    assert 'remove "--grid C=..."' in done.stderr


def test_usage_errors_have_their_own_code(run, tmp_path):
    assert run("train").exit_code == 2
    assert run("no-such-command").exit_code == 2
    assert run("train", "d.csv", "-o", "m", "--cv", "many").exit_code == 2
    assert run("reproduce", "no-such-paper").exit_code == 2
    write_csv(tmp_path / "d.csv", people(40))
    train = ("train", "d.csv", "-o", "m")
    assert run(*train).exit_code == 2  # --target is missing
    assert run(*train, "-t", "anwser").exit_code == 2
    assert run(*train, "-t", "answer", "--metric", "rmse").exit_code == 2
    assert run(*train, "-t", "answer", "--positive", "maybe").exit_code == 2
    assert run("train", "no-such.csv", "-t", "answer", "-o", "m").exit_code == 1
    (tmp_path / "empty.csv").write_text("")
    assert run("train", "empty.csv", "-t", "answer", "-o", "m").exit_code == 1
    assert run("--version").exit_code == 0


def test_tune_takes_the_best_candidate(run, tmp_path):
    write_csv(tmp_path / "d.csv", people(80))
    done = run("tune", "d.csv", "-t", "answer", "-o", "m", "--json", "-g", "gamma=0.001,0.3,1000",
               "-s", "C=10", "--cv", "3", "--report", "r.html")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    scores = {trial["gamma"]: trial["score"] for trial in result["trials"]}
    assert len(scores) == 3
    assert result["chosen"]["gamma"] == max(scores, key=scores.get) == 0.3
    assert "Search over gamma" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("estimator", ["lssvm", "sparse", "reduced", "low-rank", "l2"])
def test_default_search_of_every_family(run, tmp_path, estimator):
    write_csv(tmp_path / "d.csv", people(40))
    few = ["-s", "max_iter=5"] if estimator == "low-rank" else []
    done = run("tune", "d.csv", "-t", "answer", "-o", "m", "--json", "-e", estimator, "--cv", "2",
               *few)  # fmt: skip
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    values = {"lssvm": 7, "sparse": 7, "reduced": 7, "low-rank": 16, "l2": 28}
    # scales that the estimator learns by default are one more gamma
    learned = getattr(getattr(estimators, result["estimator"])(), "gamma", None) == "learn"
    assert len(result["trials"]) == values[estimator] + learned * values[estimator] // 7


def test_regression_report(run, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 80)
    rows = [[f"{a:.3f}", f"{np.sin(a):.3f}"] for a in x]
    write_csv(tmp_path / "d.csv", rows, ("x", "y"))
    done = run("train", "d.csv", "-t", "y", "-o", "m", "--report", "r.html", "--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["task"] == "regression" and result["evaluation"]["score"] > 0.95
    assert "root mean squared error" in (tmp_path / "r.html").read_text()


def test_list_and_download_of_data_sets(run, tmp_path, monkeypatch):
    from leansvm.datasets import LabelledData
    from leansvm.datasets._files import save

    monkeypatch.setenv("LEANSVM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save(LabelledData("own", np.eye(2), np.array([0, 1])), tmp_path / "data" / "own" / "own.npz")
    shown = json.loads(run("datasets", "list", "--json").stdout)
    assert shown["own"]["file"].endswith("own.npz")
    assert shown["ijcnn1"] == {
        "shape": "49,990 / 91,701 x 22", "papers": "zhou2013, zhou2016", "file": None,
    }  # fmt: skip
    assert "ijcnn1" in run("datasets", "list").stdout
    unknown = run("datasets", "download", "ijcnn")
    assert unknown.exit_code == 2 and "did you mean ijcnn1" in unknown.stderr
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    offline = run("datasets", "download", "a9a", "splice", "--mirror", "http://127.0.0.1:9")
    assert offline.exit_code == 1
    assert offline.stderr.count("no connection") == 2 and "LEANSVM_DATA" in offline.stderr
