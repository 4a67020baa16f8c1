"""A model as one ES module without dependencies, for browsers and Node.

Tables are kept as base64 of little-endian numbers; the arithmetic is JavaScript's, in double.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.export._checks import check_categories
from leansvm.export._columns import MISSING, Column
from leansvm.export._formula import Formula, formula_of
from leansvm.export._store import BYTES, small_numbers, stored_alike, table_bytes

_READERS = {
    "float64": "(view, i) => view.getFloat64(8 * i, true)",
    "float32": "(view, i) => view.getFloat32(4 * i, true)",
    "float16": "(view, i) => half(view.getUint16(2 * i, true))",
    "int16": "(view, i) => view.getInt16(2 * i, true)",
    "int8": "(view, i) => view.getInt8(i)",
}
_TABLE = """
// the numbers of a table; `step` is what 1 stands for in each of its columns
const table = (text, width, read, step) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer), values = new Float64Array(bytes.length / width);
  return values.map((_, i) => read(view, i) * (step ? step[i % step.length] : 1));
};
"""
_HALF = """
const half = (h) => {
  const e = (h >> 10) & 31, m = h & 1023;
  return (h & 0x8000 ? -1 : 1) * (e ? (m + 1024) * 2 ** (e - 25) : m * 2 ** -24);
};
"""
_VALUES = """
const missing = (v) => v === null || v === undefined || v !== v;
const number = (v) => {
  if (missing(v) || (typeof v === "string" && v.trim() === "")) return NaN;
  const result = typeof v === "object" ? NaN : Number(v);
  if (result !== result) throw new TypeError(`${String(v)} is no number`);
  return result;
};

// the values of a row, which is an array in the order of `features` or an object with their names
const valuesOf = (row) =>
  Array.isArray(row) || ArrayBuffer.isView(row) ? row : features.map((name) => row[name]);
"""
_CURVE = """
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
_DATES = """
// days since 1970 of a number of days, a Date (in UTC) or a text such as "2024-03-01T08:30:00"
const daysOf = (v) => {
  if (v instanceof Date) return v.getTime() / 864e5;
  if (typeof v !== "string" || v.trim() === "") return number(v);
  const written = v.trim().replace(" ", "T").replace(/(T.*)(Z|[+-]\\d\\d:?\\d\\d)$/, "$1");
  const isIso = /^\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d(:\\d\\d(\\.\\d+)?)?)?$/.test(written);
  const days = isIso ? Date.parse(written.length > 10 ? written + "Z" : written) / 864e5 : NaN;
  if (days !== days) throw new TypeError(`${v} is no date such as 2024-01-31 or 2024-01-31T08:30`);
  return days;
};
// hours since midnight of a number of hours or a text such as "08:30"
const hoursOf = (v) => {
  if (typeof v !== "string" || v.trim() === "") return number(v);
  const [h, m, s] = v.split(":").map(Number);
  return number(h + m / 60 + (s || 0) / 3600);
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
_TERMS = {
    "squared": "d * d",
    "absolute": "Math.abs(d)",
    "chi2": "(s > 0 ? (d * d) / s : 0)",
    "dot": "u[i] * points[at + i]",
    "unit-dot": "u[i] * points[at + i]",
}
_OUTER = {
    "identity": "t",
    "exp": "Math.exp(-t)",
    "simplex": "t >= 1 ? 0 : 1 - t",
    "power": "(t + COEF0) ** DEGREE",
    "tanh": "Math.tanh(t + COEF0)",
    "root": "t > 49e4 ? 0 : (1 + LINEAR * Math.sqrt(t) + QUADRATIC * t) * Math.exp(-Math.sqrt(t))",
}


def to_js(model: Any, *, store: str | None = None, metadata: dict[str, Any] | None = None) -> str:
    """Write a fitted model as an ES module.

    Parameters
    ----------
    model : estimator
        Fitted machine, a pipeline that ends in one, or what `compress` returned.
    store : {"float64", "float32", "float16", "int8"}, default=None
        Type of the numbers in the tables; default: float64, or what `compress` chose.
    metadata : dict, default=None
        Facts to export as ``metadata``, of types that JSON has.

    Returns
    -------
    str
        The module. It exports ``predict(row)``, ``values(row)`` (what `decision_function` gives)
        and, of a calibrated classifier, ``probabilities(row)``; and ``features``, ``classes`` and
        ``metadata``. A row is an array, or an object with the names of the features. Labels of
        2**53 and more are BigInts.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import LSSVR
    >>> from leansvm.export import to_js
    >>> X = np.linspace(0, 1, 5)[:, None]
    >>> module = to_js(LSSVR().fit(X, X[:, 0]))
    >>> "export function predict(row)" in module
    True
    """
    formula = formula_of(model, metadata)
    check_categories(formula, "float64")
    return _Module(stored_alike(formula, store or formula.store)).text()


class _Module:
    """The parts of a module, in their order."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula

    def text(self) -> str:
        """Return the module."""
        formula, facts = self.formula, self.formula.facts
        head = (
            f"// {facts['model']}, written by leansvm {facts['leansvm']}: {formula.counts}, "
            f"{table_bytes(formula):,} bytes of {formula.store}."
        )
        lines = [head, *self._exports(), _HALF if formula.store == "float16" else "", _TABLE]
        lines += [_CURVE, _VALUES] if self._has_curves() else [_VALUES]
        lines.append(_DATES if formula.dates else "")
        lines += [*self._values(), *self._predict(), *self._probabilities()]
        return "\n".join(line for line in lines if line) + "\n"

    def _exports(self) -> Iterable[str]:
        formula = self.formula
        yield f"export const features = {_json(list(formula.inputs))};"
        if formula.classes is not None:
            yield f"export const classes = {_labels(formula.classes.tolist())};"
        texts = {formula.inputs[i]: values for i, values in formula.texts.items()}
        if texts:
            yield f"export const texts = {_json(texts)};"
        yield f"export const metadata = {_json(formula.facts['metadata'])};"

    def _tables(self) -> Iterable[str]:
        formula = self.formula
        store, coef_store = formula.store, formula.coef_store
        for name, of_steps, kind in (
            ("points", "steps", store),
            ("shapes", "shape_steps", store),
            ("coef", "coef_steps", coef_store),
        ):
            values, steps = getattr(formula, name), getattr(formula, of_steps)
            if values is not None:
                text = _base64(values, steps, kind)
                given = "" if steps is None else f", {_list(steps)}"
                reader = f"{BYTES[kind]}, {_READERS[kind]}"
                yield f'const {name} = table("{text}", {reader}{given});'
        yield f"const intercept = {_list(formula.intercept)};"
        numbers = formula.columns[: formula.n_numbers]
        yield f"const source = {_json([column.source for column in numbers])};"
        for name in ("center", "scale", "lower", "upper", "fill"):
            each = [getattr(column, name) for column in numbers]
            yield f"const {name} = {_list(np.nan if v is None else v for v in each)};"
        if self._has_curves():
            knots = ("null" if c.knots is None else _json(c.knots) for c in numbers)
            yield f"const knots = [{', '.join(knots)}];"
        for place, column in enumerate(formula.columns):
            if column.kind == "mean":  # means of the target by level
                keys = [None if text is MISSING else text for text in column.categories]
                values = [column.result(v) for v in column.numbers]
                pairs = _json(list(zip(keys, values, strict=True)))
                yield f"const means{place} = new Map({pairs});"

    def _columns(self) -> Iterable[str]:
        formula = self.formula
        yield "// what the machine sees of a row"
        yield "const columnsOf = (row) => {"
        dates = formula.dates
        given = "Array.from(valuesOf(row))" if dates else "valuesOf(row)"
        yield f"  const x = {given}, u = new Float64Array({len(formula.columns)});"
        for i, kind in dates.items():
            yield f"  x[{i}] = {'daysOf' if kind == 'date' else 'hoursOf'}(x[{i}]);"
        yield "  for (let i = 0; i < source.length; i++) {"
        yield "    let v = number(x[source[i]]);"
        yield "    if (v !== v) v = fill[i];"
        yield "    v = (v - center[i]) * scale[i];"
        yield "    u[i] = v < lower[i] ? lower[i] : v > upper[i] ? upper[i] : v;"
        if self._has_curves():
            yield "    if (knots[i]) u[i] = curve(u[i], ...knots[i]);"
        yield "  }"
        texts = formula.texts
        for place, column in enumerate(formula.columns):
            if column.kind != "number":
                yield self._category(place, column, column.source in texts)
        yield "  return u;\n};\n"

    def _category(self, place: int, column: Column, is_text: bool) -> str:
        """Return a line that sets u to one of two numbers."""
        value = f"x[{column.source}]"
        if column.kind in ("sin", "cos"):
            turn = "clock" if column.reads == "time" else column.cycle
            point = f"{value} !== {value} ? 0 : Math.{column.kind}(2 * Math.PI * {turn}({value}))"
            center, scale = _number(column.center), _number(column.scale)
            return f"  u[{place}] = (({point}) - {center}) * {scale};"
        if column.kind == "mean":
            key = f"missing({value}) ? null : {value}"
            rest = _number(column.result(column.rest))
            return f"  u[{place}] = means{place}.get({key}) ?? {rest};"
        if not is_text:
            value = f"number({value})"
        tests = [f"{value} === {_json(c)}" for c in column.categories if c is not MISSING]
        holds = column.kind == "missing" or MISSING in column.categories
        if holds or (column.fill is not None and column.fill in column.categories):
            tests.append(f"missing({value})")
        test = " || ".join(tests) or "false"
        if column.kind == "other":
            test = f"!({test})"
        yes, no = column.at(np.array([1.0, 0.0]))
        return f"  u[{place}] = {test} ? {_number(yes)} : {_number(no)};"

    def _has_curves(self) -> bool:
        columns = (column for term in self.formula.terms for column in term.columns)
        return any(c.kind == "number" and c.knots is not None for c in columns)

    def _values(self) -> Iterable[str]:
        """The function of all outputs; of several terms each has a scope with its own tables."""
        comment = "// f of every output: what decision_function or predict gives in Python"
        if not self.formula.others:
            yield from (*self._tables(), *self._columns(), comment)
            yield "export function values(row) {"
            yield from self._sum()
            return
        yield "// one function for each part of the kernel"
        yield "const parts = ["
        for term in self.formula.terms:
            module = _Module(term)
            lines = (*module._tables(), *module._columns())
            yield from ("(() => {", *lines, "return (row) => {", *module._sum(), "})(),")
        yield f"];\n\n{comment}"
        yield "export function values(row) {"
        yield "  const each = parts.map((part) => part(row));"
        yield "  return each[0].map((_, k) => each.reduce((sum, f) => sum + f[k], 0));\n}\n"

    def _sum(self) -> Iterable[str]:
        formula = self.formula
        linear = formula.coef is None
        yield f"  const u = columnsOf(row), out = new Array({formula.outputs}).fill(0);"
        if formula.sum == "unit-dot":
            yield "  let top = 0, norm = 0; // squares of values over the largest do not overflow"
            yield "  for (const v of u) if (Math.abs(v) > top) top = Math.abs(v);"
            yield "  for (let i = 0; i < u.length; i++) norm += (u[i] /= top || 1) ** 2;"
            yield "  norm = Math.sqrt(norm) || 1;"
        yield f"  for (let j = 0; j < {formula.size}; j++) {{"
        yield f"    const at = j * {len(formula.columns)};"
        yield "    let t = 0;"
        yield f"    for (let i = 0; i < {len(formula.columns)}; i++) {{"
        if formula.sum not in ("dot", "unit-dot"):
            yield "      const d = u[i] - points[at + i];"
        if formula.sum == "chi2":
            yield "      const s = u[i] + points[at + i];"
            yield "      if (u[i] < 0) t = NaN; // there are no counts below 0"
        weight = "" if formula.shapes is None else "shapes[at + i] * "
        yield f"      t += {weight}{_TERMS[formula.sum]};"
        yield "    }"
        if formula.sum == "unit-dot":
            yield "    t /= norm;"
        outer, numbers = _OUTER[formula.outer], (formula.coef0, formula.degree, *formula.polynomial)
        for name, number in zip(("COEF0", "DEGREE", "LINEAR", "QUADRATIC"), numbers, strict=True):
            outer = outer.replace(name, _number(number))
        yield f"    const g = {outer};"
        if linear:
            yield "    out[j] += g;"
        else:
            n = formula.outputs
            yield f"    for (let k = 0; k < {n}; k++) out[k] += g * coef[j * {n} + k];"
        yield "  }"
        yield "  return out.map((value, k) => value + intercept[k]);\n}\n"

    def _predict(self) -> Iterable[str]:
        formula = self.formula
        result = "f[0]" if formula.single and formula.outputs == 1 else "f"
        if formula.classes is not None:
            several = "f.indexOf(f.reduce((a, b) => Math.max(a, b)))"  # undefined if f is NaN
            best = "+(f[0] > 0)" if formula.outputs == 1 else several
            result = f"classes[{best}]"
        yield "export function predict(row) {"
        yield f"  const f = values(row);\n  return {result};\n}}"

    def _probabilities(self) -> Iterable[str]:
        formula = self.formula
        if formula.slopes is None:
            return
        knots, slopes, offsets = ([_number(v) for v in part] for part in formula.log_odds)
        yield "\nfunction logOdds(f) {"
        yield f"  const zone = {' + '.join(f'(f > {knot})' for knot in knots)};"
        yield f"  return [{', '.join(slopes)}][zone] * f + [{', '.join(offsets)}][zone];\n}}"
        yield "\n// in the order of `classes`\nexport function probabilities(row) {"
        yield "  const f = values(row);"
        if formula.outputs == 1:
            yield "  const z = logOdds(f[0]);"
            yield "  return [1 / (1 + Math.exp(z)), 1 / (1 + Math.exp(-z))];"
        else:
            yield "  const logs = f.map((v) => {"
            yield "    const z = logOdds(v); // logarithm of sigma(z)"
            yield "    return Math.min(z, 0) - Math.log1p(Math.exp(-Math.abs(z)));"
            yield "  });"
            yield "  const top = logs.reduce((a, b) => Math.max(a, b));"
            yield "  const p = logs.map((v) => Math.exp(v - top));"
            yield "  const sum = p.reduce((a, b) => a + b, 0);"
            yield "  return p.map((v) => v / sum);"
        yield "}"


def _base64(values: NDArray[Any], steps: NDArray[Any] | None, store: str) -> str:
    numbers = values.astype(store) if steps is None else small_numbers(values, steps, store)
    little = numbers.astype(numbers.dtype.newbyteorder("<"), order="C")
    return base64.b64encode(little.tobytes()).decode("ascii")


def _number(value: float) -> str:
    if np.isfinite(value):
        return repr(float(value))
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _list(values: Iterable[float]) -> str:
    return f"[{', '.join(_number(value) for value in values)}]"


def _json(value: Any) -> str:
    """Return JSON that may also stand inside a page's <script>: "<" is in texts alone."""
    return json.dumps(value).replace("<", "\\u003c")


def _labels(labels: list[Any]) -> str:
    """Return a list of labels; whole numbers that JavaScript's numbers lack become BigInts."""
    whole = all(isinstance(label, int) for label in labels)
    if whole and any(abs(label) >= 2**53 for label in labels):
        return f"[{', '.join(f'{label}n' for label in labels)}]"
    return _json(labels)
