"""A model as one C99 header without dependencies: tables of numbers and a function that uses them.

No memory is allocated, nothing but <math.h> (and <stdint.h> for small types) is included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from leansvm.export._c_text import (
    C_TURNS,
    CURVE,
    HALF,
    c_comment,
    c_facts,
    c_labels,
    c_numbers,
    c_probabilities,
    c_refusal,
    c_small_table,
    c_table,
    c_units,
    c_usage,
)
from leansvm.export._checks import check_categories, check_numbers
from leansvm.export._columns import MISSING, Column
from leansvm.export._formula import Formula, formula_of
from leansvm.export._store import stored_alike, table_bytes
from leansvm.tables._columns import CYCLES

_TYPES = {"float64": "double", "float32": "float"}
_STEPS = {"points": "steps", "shapes": "shape_steps", "coef": "coef_steps"}
_TERMS = {
    "squared": "d * d",
    "absolute": "{abs}(d)",
    "chi2": "(s > 0 ? d * d / s : 0)",
}


def to_c(
    model: Any,
    *,
    name: str = "model",
    dtype: str = "float64",
    store: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> str:
    """Write a fitted model as a C99 header.

    Parameters
    ----------
    model : estimator
        Fitted estimator of leansvm, a pipeline that ends with one, or what `compress` or
        `tune_threshold` returned.
    name : str, default="model"
        Prefix of all names in the header; a C identifier.
    dtype : {"float64", "float32"}, default="float64"
        Compute in double or in float.
    store : {"float64", "float32", "float16", "int8"}, default=None
        Type of the numbers in the tables; default: that of ``dtype``. `compress` finds the
        smallest that is good enough.
    metadata : dict, default=None
        Facts to name in the comment at the top, of types that JSON has.

    Returns
    -------
    str
        The header. ``name_predict(x, out)`` takes the values of one row and writes what
        `decision_function` (a classifier) or `predict` (a regressor) gives; for a classifier it
        returns the number of the class in ``name_classes``. A calibrated one also has
        ``name_probabilities(out, p)``. If Python refuses the row, because a number is missing or
        infinite, ``out`` is NAN and the class is -1.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import LSSVR
    >>> from leansvm.export import to_c
    >>> X = np.linspace(0, 1, 5)[:, None]
    >>> header = to_c(LSSVR().fit(X, X[:, 0]), name="line")
    >>> "void line_predict(const double *x, double *out)" in header
    True
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name, flags=re.ASCII):
        raise ValueError(f"name must be a C identifier such as 'model', got {name!r}.")
    if dtype not in _TYPES:
        raise ValueError(f"dtype must be one of {', '.join(_TYPES)}, got {dtype!r}.")
    formula = formula_of(model, metadata)
    by_dtype = store is None and formula.store == "float64"
    check_numbers(formula, dtype)
    check_categories(formula, dtype)
    if by_dtype:
        formula = stored_alike(formula, dtype, "dtype")
    else:
        formula = stored_alike(formula, store or formula.store)
    return _Header(formula, name, dtype).text()


class _Header:
    """The parts of a header, in their order."""

    # of several terms each has its own tables and function, which begin with NAME_1, NAME_2 ...

    def __init__(self, formula: Formula, name: str, dtype: str, is_term: bool = False) -> None:
        self.formula, self.name, self.dtype, self.is_term = formula, name, dtype, is_term
        self.real = _TYPES[dtype]
        self.suffix = "f" if dtype == "float32" else ""

    def text(self) -> str:
        """Return the header."""
        small = self.formula.store in ("float16", "int8")
        before = [
            "#ifndef NAME_H\n#define NAME_H\n\n#include <math.h>",
            "#include <stdint.h>" if small else "",
            self._sizes(),
        ]
        after = [*self._functions(), *c_probabilities(self.formula, self.dtype), "\n#endif"]
        # comment and labels hold texts of the user, which may have the word NAME
        parts = [self._comment(), *self._named(before), *self._labels(), *self._named(after)]
        return "\n".join(part for part in parts if part) + "\n"

    def _named(self, parts: list[str]) -> list[str]:
        return [part.replace("NAME", self.name) for part in parts]

    def _functions(self) -> Iterable[str]:
        """Tables and the function that uses them."""
        if not self.formula.others:
            yield from self._tables()
            yield HALF if self.formula.store == "float16" else ""
            yield self._curve() if self._has_curves() or self.formula.scale else ""
            yield from self._predict()
            return
        for number, term in enumerate(self.formula.terms, 1):
            header = _Header(replace(term, classes=None), f"NAME_{number}", self.dtype, True)
            yield from header._named(list(header._functions()))
        yield self._curve() if self.formula.scale else ""
        yield from self._predict()

    # ------------------------------------------------------------------ tables

    def _comment(self) -> str:
        formula, facts = self.formula, self.formula.facts
        lines = [
            f"{facts['model']}, written by leansvm {facts['leansvm']}: {formula.counts}, "
            f"{table_bytes(formula):,} bytes of {formula.store}.",
            *c_facts(facts["metadata"]),
            *c_usage(formula, self.name, self.dtype),
        ]
        text = "\n * ".join(c_comment(line) for line in lines)
        return f"/* {text}\n */".replace(" \n", "\n")

    def _sizes(self) -> str:
        sizes = {"INPUTS": len(self.formula.inputs), "OUTPUTS": self.formula.outputs}
        if self.formula.classes is not None:
            sizes["CLASSES"] = len(self.formula.classes)
        return "".join(f"\n#define NAME_{key} {value}" for key, value in sizes.items())

    def _labels(self) -> Iterable[str]:
        classes = self.formula.classes
        if classes is not None:
            yield "\n" + c_labels(f"{self.name}_classes", classes)
        for i, texts in self.formula.texts.items():
            yield "\n" + c_labels(f"{self.name}_texts_{i}", np.array(texts))

    def _tables(self) -> Iterable[str]:
        formula = self.formula
        numbers = formula.columns[: formula.n_numbers]
        if numbers:
            sources = [column.source for column in numbers]
            if sources != list(range(len(sources))):
                yield c_table("int", "NAME_source", [str(source) for source in sources])
            yield self._reals("center", [column.center for column in numbers])
            yield self._reals("scale", [column.scale for column in numbers])
            if not all(column.is_free() for column in numbers):
                yield self._reals("lower", [column.lower for column in numbers])
                yield self._reals("upper", [column.upper for column in numbers])
            if any(column.fill is not None for column in numbers):
                fills = [np.nan if column.fill is None else column.fill for column in numbers]
                yield self._reals("fill", fills)
            if self._has_curves():
                knots = [column.knots or ((), ()) for column in numbers]
                starts = np.cumsum([0, *(len(x) for x, _ in knots)])
                yield c_table("int", "NAME_knots", [str(start) for start in starts])
                yield self._reals("knot_x", [v for x, _ in knots for v in x])
                yield self._reals("knot_y", [v for _, y in knots for v in y])
        for table in ("points", "shapes", "coef"):
            values = getattr(formula, table)
            if values is not None:
                steps = getattr(formula, _STEPS[table])
                if steps is not None:
                    yield c_table("float", f"NAME_{table}_step", c_numbers(steps, "float32"))
                store = formula.coef_store if table == "coef" else formula.store
                yield c_small_table(f"NAME_{table}", values, steps, store)
        yield self._reals("intercept", formula.intercept)

    def _reals(self, table: str, values: Any) -> str:
        return c_table(self.real, f"NAME_{table}", c_numbers(values, self.dtype))

    # ------------------------------------------------------------------ functions

    def _predict(self) -> Iterable[str]:
        formula, real = self.formula, self.real
        if "date" in formula.dates.values():
            yield C_TURNS.replace("REAL", real).replace("FLOOR", self._call("floor"))
        kind = "void" if formula.classes is None else "int"
        yield f"\nstatic inline {kind} NAME_predict(const {real} *x, {real} *out) {{"
        if formula.others:
            yield f"  {real} more[{formula.outputs}];"
            yield "  NAME_1_predict(x, out);"
            for number in range(2, len(formula.terms) + 1):
                yield f"  NAME_{number}_predict(x, more);"
                yield f"  for (int k = 0; k < {formula.outputs}; k++) out[k] += more[k];"
        else:
            yield f"  {real} u[{len(formula.columns)}];"
            yield from self._columns()
            yield from self._linear() if formula.coef is None else self._expansion(formula.outputs)
        if not self.is_term:
            yield from c_units(formula, self.dtype)
            yield from c_refusal(formula, real)
        if formula.classes is not None and formula.outputs == 1:
            yield f"  return out[0] != out[0] ? -1 : out[0] {self._second_class()};"
        elif formula.classes is not None:
            yield "  int best = 0;"
            yield f"  for (int k = 0; k < {formula.outputs}; k++) {{"
            yield "    if (out[k] != out[k]) return -1;"
            yield "    if (out[k] > out[best]) best = k;"
            yield "  }"
            yield "  return best;"
        yield "}"

    def _second_class(self) -> str:
        threshold = self.formula.threshold
        return "> 0" if threshold is None else f">= {c_numbers([threshold], self.dtype)[0]}"

    def _columns(self) -> Iterable[str]:
        """Lines that turn x into u."""
        formula, real = self.formula, self.real
        numbers = formula.columns[: formula.n_numbers]
        if numbers:
            straight = [column.source for column in numbers] == list(range(len(numbers)))
            yield f"  for (int i = 0; i < {len(numbers)}; i++) {{"
            yield f"    {real} v = x[{'i' if straight else 'NAME_source[i]'}];"
            if any(column.fill is not None for column in numbers):
                yield "    if (v != v) v = NAME_fill[i];"
            yield "    v = (v - NAME_center[i]) * NAME_scale[i];"
            if not all(column.is_free() for column in numbers):
                yield "    if (v < NAME_lower[i]) v = NAME_lower[i];"
                yield "    if (v > NAME_upper[i]) v = NAME_upper[i];"
            if self._has_curves():
                yield "    const int a = NAME_knots[i], n = NAME_knots[i + 1] - a;"
                yield "    if (n > 0) v = NAME_curve(v, NAME_knot_x + a, NAME_knot_y + a, n);"
            yield "    u[i] = v;"
            yield "  }"
        texts = formula.texts
        for place, column in enumerate(formula.columns[len(numbers) :], len(numbers)):
            yield self._category(place, column, texts.get(column.source))

    def _has_curves(self) -> bool:
        return any(c.kind == "number" and c.knots is not None for c in self.formula.columns)

    def _curve(self) -> str:
        return CURVE.replace("REAL", self.real)

    def _category(self, place: int, column: Column, texts: list[str] | None) -> str:
        """A line that sets u to one of two numbers."""
        value = f"x[{column.source}]"
        missing = f"{value} != {value}"
        if column.kind in ("sin", "cos"):
            turn = f"NAME_turn({list(CYCLES).index(column.cycle)}, {value})"
            turn = f"{value} / 24" if column.reads == "time" else turn
            circle, *unit = c_numbers([2 * np.pi, column.center, column.scale], self.dtype)
            point = f"{missing} ? 0 : {self._call(column.kind)}({circle} * ({turn}))"
            return f"  u[{place}] = (({point}) - {unit[0]}) * {unit[1]};"
        if column.kind == "mean":
            assert texts is not None
            each = [column.result(column.number_of(key)) for key in (*texts, MISSING, None)]
            *levels, gap, rest = c_numbers(each, self.dtype)
            return (
                f"  {c_table(self.real, f'means{place}', levels)}\n"
                f"  u[{place}] = {missing} ? {gap} : {value} >= 0 && {value} < {len(texts)} "
                f"? means{place}[(int){value}] : {rest};"
            )
        if column.kind == "missing":
            test = missing
        else:
            tests = []
            for category in column.categories:
                if category is MISSING:
                    tests.append(missing)
                    continue
                number = texts.index(category) if texts else category
                tests.append(f"{value} == {c_numbers([number], self.dtype)[0]}")
                if category == column.fill:
                    tests.append(missing)
            test = " || ".join(tests) or "0"
            if column.kind == "other":
                test = f"!({test})"
        yes_text, no_text = c_numbers(column.at(np.array([1.0, 0.0])), self.dtype)
        return f"  u[{place}] = ({test}) ? {yes_text} : {no_text};"

    def _linear(self) -> Iterable[str]:
        formula = self.formula
        yield f"  for (int k = 0; k < {formula.outputs}; k++) {{"
        yield f"    {self.real} t = 0;"
        yield f"    for (int i = 0; i < {len(formula.columns)}; i++)"
        yield f"      t += u[i] * {self._entry('points', 'k')};"
        yield "    out[k] = t + NAME_intercept[k];"
        yield "  }"

    def _expansion(self, outputs: int) -> Iterable[str]:
        formula, real = self.formula, self.real
        carried = self.dtype == "float32"  # what rounding took from the sums
        if formula.sum == "unit-dot":
            each, size = f"for (int i = 0; i < {len(formula.columns)}; i++)", self._call("fabs")
            yield f"  {real} top = 0, norm = 0; /* squares of values over the largest are small */"
            yield f"  {each} if ({size}(u[i]) > top) top = {size}(u[i]);"
            yield f"  {each} {{ if (top > 0) u[i] /= top; norm += u[i] * u[i]; }}"
            yield f"  norm = norm > 0 ? {self._call('sqrt')}(norm) : 1;"
        zeros = f"for (int k = 0; k < {outputs}; k++) out[k] = 0"
        yield f"  {real} lost[{outputs}];" if carried else f"  {zeros};"
        if carried:
            yield f"  {zeros}, lost[k] = 0;"
        yield f"  for (int j = 0; j < {formula.size}; j++) {{"
        yield f"    {real} t = 0;"
        yield f"    for (int i = 0; i < {len(formula.columns)}; i++) {{"
        yield from (f"      {line}" for line in self._terms())
        yield "    }"
        yield from (f"    {line}" for line in self._outer())
        yield f"    for (int k = 0; k < {outputs}; k++) {{"
        coef = self._narrowed(f"NAME_coef[j * {outputs} + k]", formula.coef_store)
        if carried:
            yield f"      const float y = t * {coef} - lost[k], s = out[k] + y;"
            yield "      lost[k] = (s - out[k]) - y;"
            yield "      out[k] = s;"
        else:
            yield f"      out[k] += t * {coef};"
        yield "    }"
        yield "  }"
        step = "" if formula.coef_steps is None else " * NAME_coef_step[k]"
        yield f"  for (int k = 0; k < {outputs}; k++) out[k] = out[k]{step} + NAME_intercept[k];"

    def _terms(self) -> Iterable[str]:
        """Lines that add one column's term to t."""
        formula = self.formula
        p = self._entry("points", "j")
        if formula.sum in ("dot", "unit-dot"):
            yield f"t += u[i] * {p};"
            return
        yield f"const {self.real} p = {p}, d = u[i] - p;"
        if formula.sum == "chi2":
            yield f"const {self.real} s = u[i] + p;"
            yield "if (u[i] < 0) t = NAN; /* there are no counts below 0 */"
        term = _TERMS[formula.sum].format(abs=self._call("fabs"))
        weight = "" if formula.shapes is None else f"{self._entry('shapes', 'j')} * "
        yield f"t += {weight}{term};"

    def _entry(self, table: str, row: str) -> str:
        entry = f"NAME_{table}[{row} * {len(self.formula.columns)} + i]"
        if self.formula.steps is None:
            return self._narrowed(entry, self.formula.store)
        if self.formula.store == "float16":
            entry = f"NAME_half({entry})"
        return f"({self.real}){entry} * NAME_{table}_step[i]"

    def _narrowed(self, entry: str, store: str) -> str:
        """Return a number of a table in the type that is computed in."""
        return f"(float){entry}" if (store, self.dtype) == ("float64", "float32") else entry

    def _outer(self) -> Iterable[str]:
        """Lines that turn t into g(t); NaN stays NaN."""
        outer, exp = self.formula.outer, self._call("exp")
        if outer in ("power", "tanh"):
            coef0, degree = c_numbers([self.formula.coef0, self.formula.degree], self.dtype)
            more = f", {degree}" if outer == "power" else ""
            function = "pow" if outer == "power" else outer
            yield f"t = {self._call(function)}(t + {coef0}{more});"
        elif outer == "identity" and self.formula.sum == "unit-dot":
            yield "t /= norm;"
        elif outer == "simplex":
            yield "t = t >= 1 ? 0 : 1 - t;"
        elif outer == "exp":
            yield f"t = {exp}(-t);"
        else:
            linear, quadratic = c_numbers(self.formula.polynomial, self.dtype)
            yield f"t = {self._call('sqrt')}(t);"
            yield f"t = t > 700 ? 0 : (1 + t * ({linear} + t * {quadratic})) * {exp}(-t);"

    def _call(self, function: str) -> str:
        return function + self.suffix
