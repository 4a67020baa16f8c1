"""Numbers, labels and names as the text of a JavaScript module, and its functions."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.export._store import small_numbers
from leansvm.tables._values import NO_VALUE

READERS = {
    "float64": "(view, i) => view.getFloat64(8 * i, true)",
    "float32": "(view, i) => view.getFloat32(4 * i, true)",
    "float16": "(view, i) => half(view.getUint16(2 * i, true))",
    "int16": "(view, i) => view.getInt16(2 * i, true)",
    "int8": "(view, i) => view.getInt8(i)",
}
TABLE = """
// the numbers of a table; `step` is what 1 stands for in each of its columns
const table = (text, width, read, step) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer), values = new Float64Array(bytes.length / width);
  return values.map((_, i) => read(view, i) * (step ? step[i % step.length] : 1));
};
"""
HALF = """
const half = (h) => {
  const e = (h >> 10) & 31, m = h & 1023;
  return (h & 0x8000 ? -1 : 1) * (e ? (m + 1024) * 2 ** (e - 25) : m * 2 ** -24);
};
"""
VALUES = """
const missing = (v) => v === null || v === undefined || v !== v;
const number = (v) => {
  if (missing(v) || (typeof v === "string" && v.trim() === "")) return NaN;
  const result = typeof v === "object" ? NaN : Number(v);
  if (result !== result) throw new TypeError(`${String(v)} is no number`);
  return result;
};
"""
TEXT = """
// a text as Python has it: blank ones are missing; so are others, where training missed values
const textOf = (v, known, gaps) => {
  if (missing(v)) return null;
  const text = typeof v === "boolean" ? (v ? "True" : "False") : String(v);
  const bare = text.trim(), none = bare === "" || (gaps && NONE.includes(bare.toLowerCase()));
  if (known.includes(text)) return text;
  return none ? null : known.includes(bare) ? bare : text;
};
""".replace("NONE", json.dumps(sorted(NO_VALUE)).replace("<", "\\u003c"))
CURVE = """
// a piecewise linear curve through knots, constant beyond them
const curve = (v, x, y) => {
  let low = 0, high = x.length - 1;
  if (v <= x[0]) return y[0];
  if (v >= x[high]) return y[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= v) low = middle;
    else high = middle;
  }
  return y[low] + (v - x[low]) * ((y[high] - y[low]) / (x[high] - x[low]));
};
"""
DATES = """
// days since 1970 of a number of days, a Date (in UTC) or a text such as "2024-03-01T08:30:00"
const daysOf = (v) => {
  if (typeof v !== "string" && !(v instanceof Date)) return number(v);
  if (typeof v === "string" && v.trim() === "") return NaN;
  if (v instanceof Date) v = v.toISOString(); // throws where it is no date
  const written = v.trim().replace(" ", "T").replace(/(T.*)(Z|[+-]\\d\\d:?\\d\\d)$/, "$1");
  const isIso = /^\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d(:\\d\\d(\\.\\d+)?)?)?$/.test(written);
  const days = isIso ? Date.parse(written.length > 10 ? written + "Z" : written) / 864e5 : NaN;
  const back = days === days ? new Date(days * 864e5).toISOString() : ""; // no February 31st
  if (back.slice(0, 10) === written.slice(0, 10)) return days;
  throw new TypeError(`${v} is no date such as 2024-01-31 or 2024-01-31T08:30`);
};
// hours since midnight of a number of hours or a text such as "08:30"
const hoursOf = (v) => {
  if (typeof v !== "string" || v.trim() === "") return number(v);
  const parts = /^\\s*(\\d\\d):([0-5]\\d)(?::([0-5]\\d(?:\\.\\d+)?))?\\s*$/.exec(v);
  if (!parts || parts[1] > 23) throw new TypeError(`${v} is no time such as 08:30`);
  return Number(parts[1]) + parts[2] / 60 + (parts[3] || 0) / 3600;
};
const hour = (d) => d - Math.floor(d);
const weekday = (d) => ((((Math.floor(d) + 3) % 7) + 7) % 7) / 7;
const month = (d) => new Date(Math.floor(d) * 864e5).getUTCMonth() / 12;
const yearday = (d) => {
  const first = new Date(Math.floor(d) * 864e5);
  return (Math.floor(d) - first.setUTCMonth(0, 1) / 864e5) / 365.25;
};
const clock = (h) => h / 24;
"""
TERMS = {
    "squared": "d * d",
    "absolute": "Math.abs(d)",
    "chi2": "(s > 0 ? (d * d) / s : 0)",
    "dot": "u[i] * points[at + i]",
    "unit-dot": "u[i] * points[at + i]",
}
OUTER = {
    "identity": "t",
    "exp": "Math.exp(-t)",
    "simplex": "t >= 1 ? 0 : 1 - t",
    "power": "(t + COEF0) ** DEGREE",
    "tanh": "Math.tanh(t + COEF0)",
    "root": "t > 49e4 ? 0 : (1 + LINEAR * Math.sqrt(t) + QUADRATIC * t) * Math.exp(-Math.sqrt(t))",
}


def js_base64(values: NDArray[Any], steps: NDArray[Any] | None, store: str) -> str:
    numbers = values.astype(store) if steps is None else small_numbers(values, steps, store)
    little = numbers.astype(numbers.dtype.newbyteorder("<"), order="C")
    return base64.b64encode(little.tobytes()).decode("ascii")


def js_number(value: float) -> str:
    if np.isfinite(value):
        return repr(float(value))
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def js_places(places: list[int], n_inputs: int) -> str:
    """Return an iterable of positions; all of them in few letters."""
    return "features.keys()" if places == list(range(n_inputs)) else str(places)


def js_list(values: Iterable[float]) -> str:
    return f"[{', '.join(js_number(value) for value in values)}]"


def js_json(value: Any) -> str:
    """Return JSON that may also stand inside a page's <script>: "<" is in texts alone."""
    return json.dumps(value).replace("<", "\\u003c")


def js_labels(labels: list[Any]) -> str:
    """Return a list of labels; whole numbers that JavaScript's numbers lack become BigInts."""
    whole = all(isinstance(label, int) for label in labels)
    if whole and any(abs(label) >= 2**53 for label in labels):
        return f"[{', '.join(f'{label}n' for label in labels)}]"
    return js_json(labels)
