"""A model as one ES module without dependencies, for browsers and Node.

Tables are kept as base64 of little-endian numbers; the arithmetic is JavaScript's, in double.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from leansvm.export._checks import check_categories
from leansvm.export._columns import MISSING, Column
from leansvm.export._formula import Formula, formula_of
from leansvm.export._js_text import (
    CURVE,
    DATES,
    HALF,
    OUTER,
    READERS,
    STRICT,
    TABLE,
    TERMS,
    TEXT,
    js_base64,
    js_json,
    js_labels,
    js_list,
    js_number,
    js_places,
    js_truth,
    js_units,
    js_values,
)
from leansvm.export._store import BYTES, stored_alike, table_bytes


def to_js(model: Any, *, store: str | None = None, metadata: dict[str, Any] | None = None) -> str:
    """Write a fitted model as an ES module.

    Parameters
    ----------
    model : estimator
        Fitted estimator of leansvm, a pipeline that ends with one, or what `compress` or
        `tune_threshold` returned.
    store : {"float64", "float32", "float16", "int8"}, default=None
        Type of the numbers in the tables; default: float64, or what `compress` chose.
    metadata : dict, default=None
        Facts to export as ``metadata``, of types that JSON has.

    Returns
    -------
    str
        The module. It exports ``predict(row)``, ``values(row)`` (what `decision_function` gives)
        and, of a calibrated classifier, ``probabilities(row)``; and ``features``, ``classes`` and
        ``metadata``. A row is an array, or an object with the names of the features. What Python
        refuses, such as infinity, throws an error. Labels of 2**53 and more are BigInts.

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
        usage = "// predict(row): an object with the keys in `features`, or an array in that order"
        lines = [head, usage, *self._exports(), HALF if formula.store == "float16" else "", TABLE]
        lines += [CURVE if self._has_curves() else "", js_values()]
        lines += [DATES if formula.dates else "", TEXT if self._words() else ""]
        lines += [js_truth() if formula.truths else "", STRICT if formula.strict else ""]
        lines += self._row()
        lines += [*self._values(), *self._predict(), *self._probabilities()]
        return "\n".join(line for line in lines if line) + "\n"

    def _exports(self) -> Iterable[str]:
        formula = self.formula
        yield f"export const features = {js_json(list(formula.inputs))};"
        if formula.classes is not None:
            yield f"export const classes = {js_labels(formula.classes.tolist())};"
        texts = {formula.inputs[i]: values for i, values in formula.texts.items()}
        if texts:
            yield f"export const texts = {js_json(texts)};"
        yield f"export const metadata = {js_json(formula.facts['metadata'])};"

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
                text = js_base64(values, steps, kind)
                given = "" if steps is None else f", {js_list(steps)}"
                reader = f"{BYTES[kind]}, {READERS[kind]}"
                yield f'const {name} = table("{text}", {reader}{given});'
        yield f"const intercept = {js_list(formula.intercept)};"
        numbers = formula.columns[: formula.n_numbers]
        yield f"const source = {js_json([column.source for column in numbers])};"
        for name in ("center", "scale", "lower", "upper", "fill"):
            each = [getattr(column, name) for column in numbers]
            yield f"const {name} = {js_list(np.nan if v is None else v for v in each)};"
        if self._has_curves():
            knots = ("null" if c.knots is None else js_json(c.knots) for c in numbers)
            yield f"const knots = [{', '.join(knots)}];"
        for place, column in enumerate(formula.columns):
            if column.kind == "mean":  # means of the target by level
                keys = [None if text is MISSING else text for text in column.categories]
                values = [column.result(v) for v in column.numbers]
                pairs = js_json(list(zip(keys, values, strict=True)))
                yield f"const means{place} = new Map({pairs});"

    def _words(self) -> dict[int, bool]:
        """Texts of tables; whether training had missing ones."""
        texts, columns = self.formula.texts, self.formula.prepared
        gaps = {column.source for column in columns if MISSING in column.categories}
        return {c.source: c.source in gaps for c in columns if c.blank and c.source in texts}

    def _row(self) -> Iterable[str]:
        """The function that checks a row, and reads its texts, dates and numbers."""
        formula, (needed, others) = self.formula, self.formula.numbers
        yield "// values of a row: an array in the order of `features`, or an object by their names"
        yield "const valuesOf = (row) => {"
        yield "  const isArray = Array.isArray(row) || ArrayBuffer.isView(row);"
        yield "  if (!isArray && (row === null || typeof row !== 'object'))"
        yield "    throw new TypeError('a row is an array of values, or an object with keys');"
        yield "  if (!isArray) {"
        yield "    const keys = Object.keys(row);"
        yield "    const unknown = keys.filter((k) => !features.includes(k));"
        yield "    const list = (names) => names.slice(0, 20).map((k) => `'${k}'`).join(', ');"
        yield "    const named = `the unknown columns [${list(unknown)}]`;"
        yield "    const what = unknown.length ? named : 'no columns';"
        yield "    if (unknown.length || !keys.length)"
        yield "      throw new TypeError("
        yield "        `A row has ${what}; the columns of training are [${list(features)}].`);"
        yield "  }"
        yield "  const own = (name) => (Object.hasOwn(row, name) ? row[name] : undefined);"
        yield "  const x = isArray ? Array.from(row) : features.map(own);"
        yield "  if (x.length !== features.length)"
        yield "    throw new TypeError(`a row has ${features.length} values, not ${x.length}`);"
        for i, kind in formula.dates.items():
            reader = "daysOf" if kind == "date" else "hoursOf"
            yield f"  x[{i}] = {reader}(x[{i}], features[{i}]);"
        for i in formula.truths:
            yield f"  x[{i}] = truthOf(x[{i}], features[{i}]);"
        for i, gaps in self._words().items():
            given = f"texts[features[{i}]], {js_json(gaps)}, features[{i}]"
            yield f"  x[{i}] = textOf(x[{i}], {given});"
        read = {*formula.dates, *formula.truths, *formula.texts, *needed, *others}
        codes = sorted({column.source for column in formula.prepared} - read)
        for places, wrong in (
            (needed, "!Number.isFinite(x[i])"),
            (others, "Math.abs(x[i]) === Infinity"),
            (codes, ""),
        ):
            if places:
                yield f"  for (const i of {js_places(places, len(formula.inputs))}) {{"
                yield "    x[i] = number(x[i], features[i]);"
                if places is needed:
                    yield "    if (missing(x[i])) throw new RangeError("
                    yield "      `Column '${features[i]}' is missing, but training had no ` +"
                    yield "      'missing values: give a number.');"
                if not wrong:
                    yield "  }"
                    continue
                yield f"    if ({wrong})"
                yield "      throw new RangeError(`${features[i]} must be finite, not ${x[i]}`);"
                yield "  }"
        for i, (known, gaps) in formula.strict.items():
            if i not in formula.truths:
                yield f"  check(x[{i}], {js_json(known)}, {js_json(gaps)}, features[{i}]);"
        yield "  return x;\n};\n"

    def _columns(self) -> Iterable[str]:
        formula = self.formula
        yield "// what the machine sees of a row"
        yield "const columnsOf = (x) => {"
        yield f"  const u = new Float64Array({len(formula.columns)});"
        yield "  for (let i = 0; i < source.length; i++) {"
        yield "    let v = x[source[i]];"
        yield "    if (v !== v) v = fill[i];"
        yield "    v = (v - center[i]) * scale[i];"
        yield "    u[i] = v < lower[i] ? lower[i] : v > upper[i] ? upper[i] : v;"
        if self._has_curves():
            yield "    if (knots[i]) u[i] = curve(u[i], ...knots[i]);"
        yield "  }"
        for place, column in enumerate(formula.columns):
            if column.kind != "number":
                yield self._category(place, column)
        yield "  return u;\n};\n"

    def _category(self, place: int, column: Column) -> str:
        """Return a line that sets u to one of two numbers."""
        value = f"x[{column.source}]"
        if column.kind in ("sin", "cos"):
            turn = "clock" if column.reads == "time" else column.cycle
            point = f"{value} !== {value} ? 0 : Math.{column.kind}(2 * Math.PI * {turn}({value}))"
            center, scale = js_number(column.center), js_number(column.scale)
            return f"  u[{place}] = (({point}) - {center}) * {scale};"
        if column.kind == "mean":
            key = f"missing({value}) ? null : {value}"
            rest = js_number(column.result(column.rest))
            return f"  u[{place}] = means{place}.get({key}) ?? {rest};"
        tests = [f"{value} === {js_json(c)}" for c in column.categories if c is not MISSING]
        holds = column.kind == "missing" or MISSING in column.categories
        if holds or (column.fill is not None and column.fill in column.categories):
            tests.append(f"missing({value})")
        test = " || ".join(tests) or "false"
        if column.kind == "other":
            test = f"!({test})"
        yes, no = column.at(np.array([1.0, 0.0]))
        return f"  u[{place}] = {test} ? {js_number(yes)} : {js_number(no)};"

    def _has_curves(self) -> bool:
        columns = (column for term in self.formula.terms for column in term.columns)
        return bool(self.formula.scale) or any(
            c.kind == "number" and c.knots is not None for c in columns
        )

    def _values(self) -> Iterable[str]:
        """The function of all outputs; of several terms each has a scope with its own tables."""
        comment = "// f of every output: what decision_function or predict gives in Python"
        if not self.formula.others:
            yield from (*self._tables(), *self._columns(), comment)
            yield self._head()
            yield "  const x = valuesOf(row);"
            yield from self._sum()
            yield from js_units(self.formula.scale)
            return
        yield "// one function for each part of the kernel"
        yield "const parts = ["
        for term in self.formula.terms:
            module = _Module(term)
            lines = (*module._tables(), *module._columns())
            yield from ("(() => {", *lines, "return (x) => {", *module._sum(), "})(),")
        yield f"];\n\n{comment}"
        yield self._head()
        yield "  const x = valuesOf(row), each = parts.map((part) => part(x));"
        yield "  return each[0].map((_, k) => each.reduce((sum, f) => sum + f[k], 0));\n}\n"
        yield from js_units(self.formula.scale)

    def _head(self) -> str:
        """The first line of the function of f."""
        name = "export function values" if self.formula.scale is None else "function learned"
        return f"{name}(row) {{"

    def _sum(self) -> Iterable[str]:
        formula = self.formula
        linear = formula.coef is None
        yield f"  const u = columnsOf(x), out = new Array({formula.outputs}).fill(0);"
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
        yield f"      t += {weight}{TERMS[formula.sum]};"
        yield "    }"
        if formula.sum == "unit-dot":
            yield "    t /= norm;"
        outer, numbers = OUTER[formula.outer], (formula.coef0, formula.degree, *formula.polynomial)
        for name, number in zip(("COEF0", "DEGREE", "LINEAR", "QUADRATIC"), numbers, strict=True):
            outer = outer.replace(name, js_number(number))
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
            several = "f.indexOf(f.reduce((a, b) => Math.max(a, b)))"
            limit = formula.threshold
            second = "> 0" if limit is None else f">= {js_number(limit)}"
            best = f"+(f[0] {second})" if formula.outputs == 1 else several
            result = f"classes[{best}]"
        yield "const valid = (f) => {"
        yield "  if (f.some((v) => v !== v)) throw new RangeError('the row has no prediction');"
        yield "  return f;\n};\n"
        yield "export function predict(row) {"
        yield "  const f = valid(values(row));"
        yield f"  return {result};\n}}"

    def _probabilities(self) -> Iterable[str]:
        formula = self.formula
        if formula.slopes is None:
            return
        knots, slopes, offsets = ([js_number(v) for v in part] for part in formula.log_odds)
        yield "\nfunction logOdds(f) {"
        yield f"  const zone = {' + '.join(f'(f > {knot})' for knot in knots)};"
        yield f"  return [{', '.join(slopes)}][zone] * f + [{', '.join(offsets)}][zone];\n}}"
        yield "\n// in the order of `classes`\nexport function probabilities(row) {"
        yield "  const f = valid(values(row));"
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
