"""Write a web page that reads hand-written digits: the model runs in the reader's browser.

    python examples/browser.py            writes digits.html; open it in any browser

The page holds the model as JavaScript (some kilobytes of 8-bit numbers) and nothing else: no
server, no library, no file beside it. Click pixels to draw; the bars are class probabilities.
"""

import argparse
from html import escape
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from leansvm import SparseLSSVC, _html
from leansvm.export import compress, to_js

SIDE = 8  # pixels of a digit
LEAD = "A kernel machine in your browser: click pixels, or take one of the digits below."
STYLE = """
#board { display: grid; grid-template-columns: repeat(8, 1fr); width: min(18rem, 90vw); gap: 2px; }
#board button { aspect-ratio: 1; border: 1px solid #8885; padding: 0; cursor: pointer; }
#bars { display: grid; grid-template-columns: 2ch 1fr; gap: .2rem .6rem; max-width: 26rem; }
#bars i { display: block; height: 1.1em; background: #2663eb; }
#samples { display: flex; flex-wrap: wrap; gap: .5rem; }
"""
BODY = """<section><div id="board" role="group" aria-label="drawing"></div>
<p>This is a <output id="label"></output>.</p><div id="bars"></div></section>
<section><h2>Digits that training did not see</h2><div id="samples"></div>
<p id="agreement"></p></section>"""
# behind the module's own text: `predict` and `probabilities` are its functions
SCRIPT = """
const board = document.getElementById("board"), bars = document.getElementById("bars");
let pixels = samples[0].slice();

const show = () => {
  [...board.children].forEach((pixel, i) => {
    pixel.style.background = `rgba(38, 99, 235, ${pixels[i] / 16})`;
    pixel.ariaPressed = pixels[i] > 0;
  });
  document.getElementById("label").textContent = predict(pixels);
  const p = probabilities(pixels);
  bars.innerHTML = classes.map((c, k) =>
    `<span>${c}</span><i style="width:${(100 * p[k]).toFixed(1)}%"></i>`).join("");
};
pixels.forEach((_, i) => {
  const pixel = document.createElement("button");
  pixel.ariaLabel = `row ${Math.floor(i / 8) + 1}, column ${(i % 8) + 1}`;
  pixel.onclick = () => { pixels[i] = pixels[i] > 0 ? 0 : 16; show(); };
  board.append(pixel);
});
const clear = document.createElement("button");
clear.textContent = "empty";
clear.onclick = () => { pixels.fill(0); show(); };
document.getElementById("samples").append(clear, ...samples.map((sample, k) => {
  const button = document.createElement("button");
  button.textContent = inPython[k];
  button.onclick = () => { pixels = sample.slice(); show(); };
  return button;
}));
const same = samples.filter((sample, k) => predict(sample) === inPython[k]).length;
document.getElementById("agreement").textContent =
  `${same} of ${samples.length} labels are those that Python gives.`;
show();
"""


def fitted():
    """Return a calibrated model of digits, and rows that it has not seen."""
    X, y = load_digits(return_X_y=True)
    model = SparseLSSVC(
        C="loo", kernel="rbf", gamma="scale", n_basis=150, calibrate=True, random_state=0
    )
    return model.fit(X[:1200], y[:1200]), X[1200:], y[1200:]


def page(model, X, y):
    """Return the page: the module, some rows with what Python says of them, and a few lines."""
    small = compress(model, X, y)
    tenth = np.arange(0, 120, 6)
    rows = [[round(value) for value in row] for row in X[tenth]]
    script = "\n".join(
        [
            to_js(small),
            f"const samples = {rows};",
            f"const inPython = {model.predict(X[tenth]).tolist()};",
            SCRIPT,
        ]
    )
    size = (
        f"{model.n_support_} points of {SIDE * SIDE} pixels as {small.store}: {small.bytes:,} bytes"
    )
    body = f'{BODY}<p>{escape(size)}</p><script type="module">{script}</script>'
    return _html.page("Digits", LEAD, body, style=STYLE)


def main():
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("digits.html"))
    output = parser.parse_args().output
    output.write_text(page(*fitted()), encoding="utf-8")
    print(f"wrote {output}: open it in a browser")


if __name__ == "__main__":
    main()
