"""``leansvm export``: files in every format, tried before they are written."""

import json
import re
import shutil

import numpy as np
import pytest

for module in ("typer", "rich", "pyarrow", "pandas", "skops", "matplotlib", "jinja2"):
    pytest.importorskip(module)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model file of a table with numbers and texts."""
    from typer.testing import CliRunner

    from leansvm.cli._app import app

    rng = np.random.default_rng(0)
    ages, cities = rng.normal(40, 5, 60).round(1), rng.choice(["Rome", "Oslo"], 60)
    lines = [
        f"{age},{city},{'yes' if (age > 40) ^ (city == 'Rome') else 'no'}"
        for age, city in zip(ages, cities, strict=True)
    ]
    folder = tmp_path_factory.mktemp("trained")
    data, model = folder / "data.csv", folder / "model.skops"
    data.write_text("\n".join(["age,city,target", *lines]))
    options = ["-t", "target", "-s", "gamma=scale", "-s", "kernel=rbf", "-s", "n_basis=10"]
    done = CliRunner().invoke(app, ["train", str(data), *options, "-o", str(model), "--quiet"])
    assert done.exit_code == 0, done.output
    return model


@pytest.mark.parametrize(
    ("name", "program"),
    [("model.onnx", None), ("model.h", "cc"), ("model.mjs", "node")],
)
def test_a_file_is_written_and_tried(run, trained, tmp_path, name, program):
    if program is None:
        pytest.importorskip("onnxruntime")
    elif shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = run("export", trained, "-o", name, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["bytes"] == (tmp_path / name).stat().st_size
    assert facts["rows"] == 1000
    assert facts["difference"] < 1e-12


def test_graph_of_a_file_carries_its_metadata(run, trained, tmp_path):
    onnx = pytest.importorskip("onnx")
    assert run("export", trained, "-o", "model.onnx", "--dtype", "float32").exit_code == 0
    graph = onnx.load(tmp_path / "model.onnx")
    facts = {p.key: p.value for p in graph.metadata_props}
    assert json.loads(facts["metadata"])["target"] == "target"
    assert json.loads(facts["metadata"])["columns"] == {"age": "number", "city": "category"}


def test_errors_of_training_rows_stay_in_the_model_file(run, tmp_path):
    pytest.importorskip("onnx")
    x = np.random.default_rng(0).normal(size=60)
    (tmp_path / "n.csv").write_text("\n".join(["x,y", *(f"{v},{v**2 + 0.1}" for v in x)]))
    assert run("train", "n.csv", "-t", "y", "-e", "LSSVR", "-o", "n.skops").exit_code == 0
    for name in ("n.mjs", "n.onnx"):
        assert run("export", "n.skops", "-o", name).exit_code == 0
        content = (tmp_path / name).read_bytes()
        assert b'"evaluation": {"method"' in content and b'"errors"' not in content
    done = run("export", "n.skops", "-o", "n.mjs", "--json")
    facts = json.loads(done.stdout)
    assert facts["largest_difference"] < 1e-6 and facts["lowest"] < facts["highest"]
    assert facts["different_labels"] is None
    done = run("predict", "n.skops", "n.csv", "--interval", "0.9")
    assert done.exit_code == 0, done.output


def test_small_numbers_and_names(run, trained, tmp_path):
    done = run(
        "export", trained, "-o", "m.h", "--store", "int8", "--dtype", "float32", "--name", "it"
    )
    assert done.exit_code == 0, done.output
    header = (tmp_path / "m.h").read_text()
    assert f"wrote m.h: {len(header):,} bytes; " in done.stdout
    if shutil.which("cc"):
        words = (
            r"tested with cc on 1,000 rows: .*label.* Python.*; decision values differ by at most"
        )
        assert re.search(words, done.stdout)
    assert "static const int8_t it_points[]" in header
    assert "it_predict(const float *x, float *out)" in header
    assert "target: target" in header


def test_a_note_says_that_rounding_changes_labels(run, trained, monkeypatch):
    from leansvm import export

    found = export.Check("an engine", 1000, 0.0, 0.1, -1.0, 1.0, labels=15)
    monkeypatch.setattr(export, "check", lambda *arguments: found)
    done = run("export", trained, "-o", "m.mjs", "--store", "int8")
    assert done.exit_code == 0, done.output
    words = "note: rounding to int8 changes 15 of 1,000 labels. leansvm.export.compress compares"
    assert words in " ".join(done.stderr.split())
    assert "note" not in run("export", trained, "-o", "m.mjs").stderr


def test_types_that_change_the_labels_are_refused(run, tmp_path):
    x = np.linspace(0, 1, 80)
    rows = [f"{v},{'high' if np.sin(20 * v) > 0 else 'low'}" for v in x]
    (tmp_path / "waves.csv").write_text("\n".join(["x,y", *rows]))
    options = ["-e", "LSSVC", "-s", "C=1e9", "-s", "gamma=0.1", "--cv", "0", "--no-calibrate"]
    done = run("train", "waves.csv", "-t", "y", *options, "-o", "waves.skops")
    assert done.exit_code == 0, done.output
    done = run("export", "waves.skops", "-o", "waves.mjs", "--store", "float16")
    assert done.exit_code == 1
    assert "store='float16' changes the predictions" in done.stderr
    assert not (tmp_path / "waves.mjs").exists()


def test_without_a_compiler_that_is_said(run, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    done = run("export", trained, "-o", "model.h")
    assert done.exit_code == 0, done.output
    assert "not tested: no C compiler (cc) was found" in done.stdout
    assert (tmp_path / "model.h").exists()
    facts = json.loads(run("export", trained, "-o", "model.js", "--json").stdout)
    assert facts["checked_with"] is None and facts["not_checked"] == "Node (node) was not found"


def test_what_differs_is_not_written(run, trained, tmp_path, monkeypatch):
    from leansvm import export

    found = export.Check("a compiler that is wrong", 1000, 0.5)
    monkeypatch.setattr(export, "check", lambda *arguments: found)
    done = run("export", trained, "-o", "model.h")
    assert done.exit_code == 1
    assert "nothing was written" in done.stderr
    assert not (tmp_path / "model.h").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "model.txt"], "the name must end in .onnx, .h, .mjs or .js"),
        (["-o", "model.js", "--name", "it"], "--name is only for .h"),
        (["-o", "model.onnx", "--store", "int8"], "--store is only for .h and .mjs"),
        (["-o", "model.h", "--name", "my model"], "C identifier"),
        (["-o", "model.h", "--store", "int4"], "'int4' is not one of"),
    ],
)
def test_wrong_options_are_named(run, trained, arguments, words):
    done = run("export", trained, *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_damaged_file_is_refused(run, tmp_path):
    (tmp_path / "model.skops").write_bytes(b"PK nothing")
    done = run("export", "model.skops", "-o", "model.h")
    assert done.exit_code == 1
    assert "model.skops is damaged or not complete" in done.stderr
