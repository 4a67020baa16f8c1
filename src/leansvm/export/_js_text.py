"""Numbers, labels and names as the text of a JavaScript module, and its functions."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.estimators.targets import LARGEST_LOG, Scale
from leansvm.export._store import small_numbers
from leansvm.tables._values import NO_VALUE, TRUTHS

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
// texts that stand for a missing value
const isNone = (text) => text === "" || NONE.includes(text.toLowerCase());
const refuse = (name, wanted, v) => {
  const found = (typeof v === "string" ? `'${v}'` : String(v)).slice(0, 60);
  const what = `Column '${name}' had ${wanted} in training, but now ${found}`;
  throw new TypeError(`${what}: correct the value, or make it missing.`);
};
const number = (v, name) => {
  const text = typeof v === "string" ? v.trim() : null;
  if (missing(v) || (text !== null && isNone(text))) return NaN;
  // no objects, and no 0x10
  const result = typeof v === "object" || /^[+-]?0[a-z]/i.test(text ?? "") ? NaN : Number(v);
  return result === result ? result : refuse(name, "numbers", v);
};
"""
TRUTH = """
const truthOf = (v, name) => {
  if (missing(v) || (typeof v === "string" && isNone(v.trim()))) return NaN;
  const word = typeof v === "string" ? v.trim().toLowerCase() : null;
  if (v === true || v === 1 || YES.includes(word)) return 1;
  if (v === false || v === 0 || NO.includes(word)) return 0;
  return refuse(name, "yes/no values", v);
};
"""
TEXT = """
// a text as Python has it: blank ones are missing; so are others, where training missed values
const textOf = (v, known, gaps, name) => {
  if (missing(v)) return null;
  if (["object", "function", "symbol"].includes(typeof v)) return refuse(name, "text", v);
  const text = typeof v === "boolean" ? (v ? "True" : "False") : String(v);
  if (known.includes(text)) return text;
  const bare = text.trim();
  if (gaps ? isNone(bare) : bare === "") return null;
  const isSame = (level) => level === bare || (typeof v === "number" && Number(level) === v);
  return known.find(isSame) ?? text;
};
"""
# a category that Python refuses
STRICT = """
const check = (v, known, gaps, name) => {
  if (missing(v) ? !gaps : !known.includes(v))
    throw new TypeError(`Found unknown category ${String(v)} in column '${name}'.`);
};
"""
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
const daysOf = (v, name) => {
  if (typeof v === "boolean") return refuse(name, "dates", v);
  if (typeof v !== "string" && !(v instanceof Date)) {
    const days = number(v, name); // years 1 to 9999: milliseconds and 20240131 are no days
    return days < -719162 || days > 2932897 ? refuse(name, "dates", v) : days;
  }
  if (typeof v === "string" && isNone(v.trim())) return NaN;
  if (v instanceof Date) v = missing(+v) ? refuse(name, "dates", v) : v.toISOString();
  const points = /^(\\d{1,2})\\.\\s?(\\d{1,2})\\.\\s?(\\d{4})(?=\\D|$)/; // 31.1.2024
  const iso = (_, d, m, y) => `${y}-${m.padStart(2, "0")}-${d.padStart(2, "0")}`;
  const text = v.trim().replace(points, iso).replace(" ", "T");
  const written = text.replace(/(T.*)(Z|[+-]\\d\\d:?\\d\\d)$/, "$1");
  const isIso = /^\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d(:\\d\\d(\\.\\d+)?)?)?$/.test(written);
  const days = isIso ? Date.parse(written.length > 10 ? written + "Z" : written) / 864e5 : NaN;
  const back = days === days ? new Date(days * 864e5).toISOString() : ""; // no February 31st
  if (back.slice(0, 10) === written.slice(0, 10)) return days;
  return refuse(name, "dates such as 2024-01-31 or 2024-01-31T08:30", v);
};
// hours since midnight of a number of hours or a text such as "08:30"
const hoursOf = (v, name) => {
  if (typeof v === "boolean" || v instanceof Date) return refuse(name, "times of day", v);
  if (typeof v !== "string" || isNone(v.trim())) {
    const hours = number(v, name);
    return hours < 0 || hours >= 24 ? refuse(name, "hours of a day (0 to 24)", v) : hours;
  }
  const parts = /^\\s*(\\d\\d?):([0-5]\\d)(?::([0-5]\\d(?:\\.\\d+)?))?\\s*$/.exec(v);
  if (!parts || parts[1] > 23) return refuse(name, "times of day such as 08:30", v);
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


def js_units(scale: Scale | None) -> Iterable[str]:
    """Yield the function that turns f into units of the target, if it was learned on others."""
    if scale is None:
        return
    if scale:
        knots = [f"[{js_list(scores)}, {js_list(units)}]" for units, scores in scale]
        yield f"const scales = [{', '.join(knots)}];"
    units = (
        "curve(v, ...scales[k])" if scale else f"Math.exp(v > {LARGEST_LOG} ? {LARGEST_LOG} : v)"
    )
    yield "// in units of the target"
    yield "export function values(row) {"
    yield f"  return learned(row).map((v, k) => {units});\n}}\n"


def js_values() -> str:
    """Return the functions that read single values."""
    return VALUES.replace("NONE", js_json(sorted(NO_VALUE)))


def js_truth() -> str:
    """Return the function that reads yes and no."""
    yes, no = (js_json(sorted(set(words))) for words in zip(*TRUTHS, strict=True))
    return TRUTH.replace("YES", yes).replace("NO.", f"{no}.")


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
