"""Numbers, labels and names of the user as the text of a C header."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.estimators.targets import LARGEST_LOG
from leansvm.export._formula import Formula
from leansvm.export._store import small_numbers

_TABLES = {
    "float64": "double",
    "float32": "float",
    "float16": "uint16_t",
    "int16": "int16_t",
    "int8": "int8_t",
}
HALF = """
/* the value of a number in half precision */
static inline float NAME_half(uint16_t h) {
  const int e = (h >> 10) & 31;
  const float m = (float)(h & 1023);
  const float v = e ? ldexpf(m + 1024.0f, e - 25) : ldexpf(m, -24);
  return h & 0x8000 ? -v : v;
}
"""
CURVE = """
/* a piecewise linear curve through n knots, constant beyond them */
static inline REAL NAME_curve(REAL v, const REAL *x, const REAL *y, int n) {
  int low = 0, high = n - 1;
  if (v <= x[0]) return y[0];
  if (v >= x[high]) return y[high];
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (x[middle] <= v) low = middle;
    else high = middle;
  }
  return y[low] + (v - x[low]) * ((y[high] - y[low]) / (x[high] - x[low]));
}
"""


# how far around the circle of the day, the week or the year a date is, by the civil calendar
C_TURNS = """
static inline REAL NAME_turn(int cycle, REAL days) {
  REAL day = FLOOR(days);
  if (!(day > -100000000 && day < 100000000)) return 0; /* no date */
  if (cycle == 0) return days - day;
  if (cycle == 1) return (day + 3 - 7 * FLOOR((day + 3) / 7)) / 7;
  long z = (long)day + 719468, era = (z >= 0 ? z : z - 146096) / 146097;
  long of_era = z - era * 146097;
  long year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  long of_year = of_era - (365 * year + year / 4 - year / 100); /* from the first of March */
  long month = (5 * of_year + 2) / 153;
  month += month < 10 ? 2 : -10;
  if (cycle == 2) return (REAL)month / 12;
  year += era * 400;
  long leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return (REAL)(month >= 2 ? of_year + 59 + leap : of_year - 306) / (REAL)365.25;
}"""


def c_small_table(table: str, values: NDArray[Any], steps: Any, store: str) -> str:
    """Return a table of points, shapes or coefficients as they are stored."""
    if steps is None:
        texts = c_numbers(values.ravel(), store)
    else:
        texts = [str(q) for q in small_numbers(values, steps, store).ravel().tolist()]
    return c_table(_TABLES[store], table, texts)


def c_numbers(values: Any, dtype: str) -> list[str]:
    """Return C's texts of numbers that are read back exactly."""
    kind = np.dtype(dtype).type
    suffix = "f" if dtype == "float32" else ""
    texts = []
    for value in np.asarray(values, kind):
        if np.isfinite(value):
            text = str(value)
            texts.append(text + suffix)
        else:
            texts.append("NAN" if np.isnan(value) else "-INFINITY" if value < 0 else "INFINITY")
    return texts


def c_table(kind: str, name: str, texts: list[str]) -> str:
    """Return the lines of a table."""
    lines, line = [], ""
    for text in texts:
        if len(line) + len(text) > 96:
            lines.append(line)
            line = ""
        line += f"{text}, " if line else f"  {text}, "
    lines.append(line)
    body = "\n".join(line.rstrip() for line in lines).rstrip(",")
    return f"static const {kind} {name}[] = {{\n{body}\n}};"


def c_labels(name: str, labels: NDArray[Any]) -> str:
    """Return a table of the type of the labels."""
    if labels.dtype.kind in "iub":
        whole = [int(label) for label in labels]
        if max(whole) >= 2**63:
            return c_table("unsigned long long", name, [f"{label}ULL" for label in whole])
        # C has no literal for -2**63: 2**63 is too large, and the sign comes after
        lowest = f"(-{2**63 - 1}LL - 1)"
        texts = [lowest if label == -(2**63) else f"{label}LL" for label in whole]
        return c_table("long long", name, texts)
    if labels.dtype.kind == "f":
        return c_table("double", name, c_numbers(labels, "float64"))
    return c_table("char *const", name, [_c_string(str(label)) for label in labels])


def _c_string(text: str) -> str:
    """Return a C string: printable ASCII as it is, other bytes (UTF-8) as three octal digits."""
    body = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{body}"'


def c_facts(metadata: dict[str, Any]) -> list[str]:
    """Return a line for every fact that is a short text or a number."""
    simple = {k: v for k, v in metadata.items() if isinstance(v, str | int | float)}
    return [f"{key}: {value}"[:200] for key, value in simple.items()]


def c_usage(formula: Formula, name: str, dtype: str) -> list[str]:
    """Return lines that say how to call the functions, and what every entry of x is."""
    real, classes = _TABLES[dtype], formula.classes is not None
    lines = ["", "how to use it:", f"  {real} x[{name}_INPUTS], out[{name}_OUTPUTS];"]
    if classes:
        lines.append(f"  int k = {name}_predict(x, out);  (the label is {name}_classes[k];")
        lines.append("     k is -1 and out is NAN if the row cannot be predicted)")
    else:
        lines.append(f"  {name}_predict(x, out);  (out is NAN if the row cannot be predicted)")
    if formula.slopes is not None:
        lines.append(f"  {real} p[{name}_CLASSES];")
        lines.append(f"  {name}_probabilities(out, p);  (after predict)")
    lines += ["", "entries of x:"]
    if any(column.blank and column.source in formula.texts for column in formula.prepared):
        lines.append(
            '  (texts without spaces at the ends; "?" and "n/a" are missing values, if the'
        )
        lines.append("   training table had missing values in this column)")
    if dtype == "float32" and "date" in formula.dates.values():
        lines.append("  (a float holds a time of day in a date only to about three minutes)")
    entries = enumerate(formula.inputs)
    return lines + [f"  x[{i}] {text}: {_entry(formula, i, name)}" for i, text in entries]


def _entry(formula: Formula, i: int, name: str) -> str:
    """Return what an entry of x has to be."""
    if i in formula.truths:
        return "1 for yes (true), 0 for no (false), NAN if missing"
    if i in formula.texts:
        return f"index of the text in {name}_texts_{i}, -1 for any other text, NAN if missing"
    if i in formula.dates:
        date = "days since 1970-01-01, the time of day as a fraction, no time zone"
        unit = date if formula.dates[i] == "date" else "hours since midnight, 8.5 for 08:30"
        return f"{unit}, NAN if missing"
    if i in formula.numbers[0]:
        return "number"
    used = any(column.source == i for column in formula.prepared)
    return "number, NAN if missing" if used else "not used"


def c_comment(text: str) -> str:
    """Return one printable line that ends no comment, begins none and has no trigraph."""
    line = "".join(c if c.isprintable() else " " for c in text)
    for pair in ("*/", "/*", "??"):  # "?" stands between others twice in "???"
        while pair in line:
            line = line.replace(pair, " ".join(pair))
    return line


def c_probabilities(formula: Formula, dtype: str) -> Iterable[str]:
    """Yield the functions that turn decision values into probabilities."""
    real, suffix = ("float", "f") if dtype == "float32" else ("double", "")
    if formula.slopes is None:
        return
    knots, slopes, offsets = (c_numbers(part, dtype) for part in formula.log_odds)
    exp, log1p = f"exp{suffix}", f"log1p{suffix}"
    yield f"\nstatic inline {real} NAME_log_odds({real} f) {{"
    yield f"  static const {real} slope[6] = {{{', '.join(slopes)}}};"
    yield f"  static const {real} offset[6] = {{{', '.join(offsets)}}};"
    yield f"  const int zone = {' + '.join(f'(f > {knot})' for knot in knots)};"
    yield "  return slope[zone] * f + offset[zone];\n}"
    yield f"\nstatic inline void NAME_probabilities(const {real} *out, {real} *p) {{"
    if formula.outputs == 1:
        yield f"  const {real} z = NAME_log_odds(out[0]);"
        yield f"  p[0] = 1 / (1 + {exp}(z));"
        yield f"  p[1] = 1 / (1 + {exp}(-z));"
    else:
        yield f"  {real} top = -INFINITY, sum = 0;"
        yield f"  for (int k = 0; k < {formula.outputs}; k++) {{ /* logarithm of sigma(z) */"
        yield f"    const {real} z = NAME_log_odds(out[k]);"
        yield f"    p[k] = (z < 0 ? z : 0) - {log1p}({exp}(z < 0 ? z : -z));"
        yield "    if (p[k] > top) top = p[k];"
        yield "  }"
        yield f"  for (int k = 0; k < {formula.outputs}; k++) sum += p[k] = {exp}(p[k] - top);"
        yield f"  for (int k = 0; k < {formula.outputs}; k++) p[k] /= sum;"
    yield "}"


def c_units(formula: Formula, dtype: str) -> Iterable[str]:
    """Yield lines that turn out into units of the target, if f was learned on others."""
    real, suffix = ("float", "f") if dtype == "float32" else ("double", "")
    if formula.scale is None:
        return
    if not formula.scale:
        largest = c_numbers([LARGEST_LOG], dtype)[0]
        yield f"  for (int k = 0; k < {formula.outputs}; k++)"
        yield f"    out[k] = exp{suffix}(out[k] > {largest} ? {largest} : out[k]);"
    for k, (units, scores) in enumerate(formula.scale):
        yield f"  {c_table(real, f'scores{k}', c_numbers(scores, dtype))}"
        yield f"  {c_table(real, f'units{k}', c_numbers(units, dtype))}"
        yield f"  out[{k}] = NAME_curve(out[{k}], scores{k}, units{k}, {len(units)});"


def c_refusal(formula: Formula, real: str) -> Iterable[str]:
    """Yield lines that make out NAN if a number is infinite, or if a missing one is not allowed."""
    needed, others = formula.numbers
    sources, place = [*needed, *others], "i"
    if not sources:
        return
    if sources != list(range(len(sources))):
        place = "numbers[i]"
        yield f"  {c_table('int', 'numbers', [str(source) for source in sources])}"
    yield f"  {real} zero = 0; /* v - v: NAN if v is NAN or infinite */"
    yield f"  for (int i = 0; i < {len(sources)}; i++) {{"
    yield f"    const {real} v = x[{place}];"
    may_miss = f"if (i < {len(needed)} || v == v) " if others else ""
    yield f"    {may_miss}zero += v - v;"
    yield "  }"
    yield f"  for (int k = 0; k < {formula.outputs}; k++) out[k] += zero;"
