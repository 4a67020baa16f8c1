"""The programs in C and JavaScript and the service of the guide run and answer as Python does."""

import http.client
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from leansvm.export import to_c, to_js
from leansvm.export._run import C_OPTIONS

pd = pytest.importorskip("pandas")
PAGES = Path(__file__).parents[2] / "docs" / "user_guide"
GUIDE = (PAGES / "shipping.md").read_text("utf-8")


@pytest.fixture(scope="module")
def model():
    """The model of the page's first example."""
    names = {}
    exec(re.search(r"^```python\n(.*?)^```", GUIDE, re.S | re.M)[1], names)
    return names["model"]


@pytest.mark.parametrize("text", ["Rome", " Rome\\t"])
@pytest.mark.parametrize("compiler", ["cc", "c++"])
def test_the_program_in_c(model, compiler, text, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    (tmp_path / "answer.h").write_text(to_c(model, name="answer"))
    main = re.search(r"^```c\n(.*?)^```", GUIDE, re.S | re.M)[1]
    (tmp_path / "main.c").write_text(main.replace('"Rome"', f'"{text}"'))
    options = C_OPTIONS if compiler == "cc" else ("-x", "c++", "-Wall", "-Wextra", "-Wconversion")
    build = [compiler, *options, "main.c", "-o", "main", "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    label, chance = done.stdout.split()
    row = pd.DataFrame({"age": [41.5], "city": ["Rome"]})
    assert label == model.predict(row)[0]
    assert float(chance) == pytest.approx(model.predict_proba(row).max(), abs=6e-4)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_the_program_in_javascript(model, tmp_path):
    (tmp_path / "answer.mjs").write_text(to_js(model))
    lines = re.search(r"^```js\n(.*?)^```", GUIDE, re.S | re.M)[1].splitlines()
    lines[2] = f"console.log({lines[2].partition(';')[0]});"
    lines[3] = f"console.log(JSON.stringify({lines[3].partition(';')[0]}));"
    (tmp_path / "main.mjs").write_text("\n".join(lines))
    done = subprocess.run(
        ["node", "main.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    label, chances = done.stdout.splitlines()
    rows = pd.DataFrame({"age": [41.5, np.nan], "city": ["Rome", "Oslo"]})
    assert label == model.predict(rows)[0]
    np.testing.assert_allclose(eval(chances), model.predict_proba(rows)[1], atol=1e-9)


def test_the_service_answers_bad_requests_with_400():
    names = {}
    exec(
        re.search(r"^```python\n(.*?)^```", (PAGES / "serving.md").read_text("utf-8"), re.S | re.M)[
            1
        ],
        names,
    )
    names["Handler"].log_message = lambda *args: None
    server, row = names["server"], {"age": 42, "region": "north"}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    answers = []
    try:
        bad = [
            "[" * 200_000,
            "{",
            "5",
            "null",
            "[]",
            *map(json.dumps, ([row], [row, row], {"age": "x"})),
        ]
        for body in (json.dumps(row), *bad):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
            connection.request("POST", "/", body)
            answer = connection.getresponse()
            answers.append((answer.status, json.loads(answer.read())))
            connection.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert answers[0][0] == 200
    chances = names["predictor"].predict_proba(row)
    assert list(answers[0][1].values()) == pytest.approx(chances.tolist())
    assert [status for status, _ in answers[1:]] == [400] * 8
    assert "'age'" in answers[-1][1]["error"]
