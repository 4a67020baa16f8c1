"""GraphNodes and constants of an ONNX graph, and the names of values on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._extras import needs
from leansvm.export._columns import Column
from leansvm.export._formula import Formula
from leansvm.kernels._function import Array

SPREAD = {"float32": 16.0, "float64": 1e3}  # of points, up to which rounding of sums is small


class GraphNodes:
    """A graph that grows node by node.

    Parameters
    ----------
    work : {"float32", "float64"}
        Type that is computed in.
    inputs : sequence of str
        Names of the inputs, with which no name inside may begin.
    """

    def __init__(self, work: str, inputs: Sequence[str]) -> None:
        self.onnx, self.work = _import_onnx(), work
        self.prefix = "_"
        while any(name.startswith(self.prefix) for name in inputs):
            self.prefix += "_"
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def flat(self, f: str) -> str:
        """Add a column as a vector."""
        return self.add("Reshape", f, self.constant([-1], np.int64))

    def add(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output and return its name."""
        name = f"{self.prefix}v{len(self.nodes)}"
        make = self.onnx.helper.make_node
        self.nodes.append(make(op, list(inputs), [name], f"n_{name}", domain=domain, **attributes))
        return name

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Add a table, of the type that is computed in unless another is given."""
        array = np.asarray(values, self.work if dtype is None else dtype)
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def cast(self, value: str, dtype: str) -> str:
        """Return the value in another type."""
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.add("Cast", value, to=kind)

    def columns_of(self, x: str, start: int, stop: int) -> str:
        """Return some columns of a matrix."""
        return self.add("Gather", x, self.constant(range(start, stop), np.int64), axis=1)

    def curves(self, x: str, knots: list[NDArray[Any]]) -> str:
        """Return piecewise linear curves, one for each column: y0 + (x - x0) * slope.

        The number of knots at or below x, but for the first and the last one, tells the piece.
        """
        low, high = (self.constant([[at[end] for at, _ in knots]]) for end in (0, -1))
        x = self.add("Min", self.add("Max", x, low), high)
        inner = np.full((1, len(knots), max(len(at) for at, _ in knots) - 1), np.inf)
        for row, (at, _) in zip(inner[0], knots, strict=True):
            row[: len(at) - 2] = at[1:-1]
        axis = self.constant([2], np.int64)
        each = self.add("Unsqueeze", x, axis)
        passed = self.cast(self.add("GreaterOrEqual", each, self.constant(inner)), "int64")
        piece = self.add("ReduceSum", passed, axis, keepdims=0)
        first = np.cumsum([0, *(len(at) - 1 for at, _ in knots[:-1])])
        piece = self.add("Add", piece, self.constant([first], np.int64))
        tables = (
            np.concatenate([at[:-1] for at, _ in knots]),
            np.concatenate([y[:-1] for _, y in knots]),
            np.concatenate([np.diff(y) / np.diff(at) for at, y in knots]),
        )
        x0, y0, slope = (self.add("Gather", self.constant(table), piece) for table in tables)
        return self.add("Add", y0, self.add("Mul", self.add("Sub", x, x0), slope))

    def probabilities(self, f: str, two: bool, *odds: Array) -> str:
        """Return p ~ sigma(z), z the log odds in the zone of f; two: f is one column."""
        knots, slopes, offsets = odds
        beyond = [self.add("Greater", f, self.constant(knot)) for knot in knots.tolist()]
        zone = self.add("Sum", *(self.cast(part, "float32") for part in beyond))
        zone = self.cast(zone, "int64")
        slope, offset = (self.add("Gather", self.constant(v), zone) for v in (slopes, offsets))
        z = self.add("Add", self.add("Mul", f, slope), offset)
        if two:
            both = self.add("Concat", self.add("Neg", z), z, axis=1)
            return self.add("Sigmoid", both)
        decay = self.add("Exp", self.add("Neg", self.add("Abs", z)))
        log1p = self.add("Log", self._by("Add", decay, 1.0))
        logs = self.add("Sub", self.add("Min", z, self.constant(0.0)), log1p)
        return self.add("Softmax", logs, axis=1)

    def scan_body(self, kind: str, weighted: bool) -> Any:
        """Return the graph of one function: the sum of its terms for every row."""
        make = self.inner
        axis = self.onnx.numpy_helper.from_array(np.array([1]))
        nodes = [
            make("Identity", ["u"], ["same"]),  # goes on to the next function
            make("Constant", [], ["axis"], value=axis),
            make("Sub", ["u", "p"], ["d"]),
        ]
        if weighted:
            nodes.append(make("Mul", ["d", "w"], ["wd"]))
        d = "wd" if weighted else "d"
        if kind == "chi2":  # (u - p)^2 / (u + p), 0 if both are 0
            tiny = np.finfo(self.work).smallest_normal
            floor = self.onnx.numpy_helper.from_array(np.asarray(tiny, self.work))
            nodes += [
                make("Constant", [], ["floor"], value=floor),
                make("Mul", ["d", "d"], ["dd"]),
                make("Add", ["u", "p"], ["both"]),
                make("Max", ["both", "floor"], ["divisor"]),
                make("Div", ["dd", "divisor"], ["terms"]),
                make("ReduceSum", ["terms", "axis"], ["t"], keepdims=0),
            ]
        else:
            total = "ReduceL1" if kind == "absolute" else "ReduceSumSquare"
            nodes.append(make(total, [d, "axis"], ["t"], keepdims=0))
        shapes: dict[str, list[Any]] = {"u": [None, None], "p": [None]}
        if weighted:
            shapes["w"] = [None]
        shapes |= {"same": [None, None], "t": [None]}  # the two outputs
        infos = [self.info(self.prefix + name, self.work, shape) for name, shape in shapes.items()]
        return self.onnx.helper.make_graph(nodes, "function", infos[:-2], infos[-2:])

    def cycles(self, days: str, columns: list[Column]) -> str:
        """Return sines, cosines and indicators of a date, or of the hours of a time of day."""
        missing = self.add("IsNaN", days)
        zero, found = self.constant(0.0), []
        turns: dict[str, str] = {}
        known = self.add("Where", missing, zero, days)
        for column in columns:
            if column.kind == "missing":
                found.append(self.cast(missing, self.work))
                continue
            cycle = "" if column.reads == "time" else column.cycle
            if cycle not in turns:
                turns[cycle] = self._turn(known, cycle)
            angle = self._by("Mul", turns[cycle], 2.0 * np.pi)
            if column.kind == "cos":  # not every runtime has cosines of doubles
                angle = self._by("Add", angle, np.pi / 2.0)
            found.append(self.add("Where", missing, zero, self.add("Sin", angle)))
        return self.add("Concat", *found, axis=1)

    def _turn(self, x: str, cycle: str) -> str:
        """Return how far around its circle a date is, as `to_c` computes it; "": hours of a day."""
        if not cycle:
            return self._by("Div", x, 24.0)
        day = self.add("Floor", x)
        if cycle == "hour":
            return self.add("Sub", x, day)
        if cycle == "weekday":
            shifted = self._by("Add", day, 3.0)
            return self._by("Div", self._rest(shifted, 7.0), 7.0)
        z = self._by("Add", day, 719468.0)
        era = self._whole(z, 146097.0)
        of_era = self._rest(z, 146097.0)
        leaps = self.add("Sub", self._whole(of_era, 36524.0), self._whole(of_era, 146096.0))
        days = self.add("Sub", of_era, self._whole(of_era, 1460.0))
        year = self._whole(self.add("Add", days, leaps), 365.0)
        leaps = self.add("Sub", self._whole(year, 4.0), self._whole(year, 100.0))
        of_year = self.add("Sub", of_era, self.add("Add", self._by("Mul", year, 365.0), leaps))
        march = self._whole(self._by("Add", self._by("Mul", of_year, 5.0), 2.0), 153.0)
        late = self.add("Less", march, self.constant(10.0))  # in the year that March is in
        if cycle == "month":
            shift = self.add("Where", late, self.constant(2.0), self.constant(-10.0))
            return self._by("Div", self.add("Add", march, shift), 12.0)
        year = self.add("Add", year, self._by("Mul", era, 400.0))
        every = [
            self.cast(self._by("Equal", self._rest(year, n), 0.0), self.work)
            for n in (4.0, 100.0, 400.0)
        ]
        leap = self.add("Add", self.add("Sub", every[0], every[1]), every[2])
        after = self.add("Add", self._by("Add", of_year, 59.0), leap)
        found = self.add("Where", late, after, self._by("Sub", of_year, 306.0))
        return self._by("Div", found, 365.25)

    def _by(self, op: str, x: str, number: float) -> str:
        return self.add(op, x, self.constant(number))

    def _whole(self, x: str, number: float) -> str:
        """Return how often a number is in x."""
        return self.add("Floor", self._by("Div", x, number))

    def _rest(self, x: str, number: float) -> str:
        """Return what is left of x then."""
        return self.add("Sub", x, self._by("Mul", self._whole(x, number), number))

    def named(self, value: str, name: str) -> str:
        """Give a value the name of an output."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name], f"n_{name}"))
        return name

    def info(self, name: str, dtype: Any, shape: list[Any]) -> Any:
        """Return the type of an input or output."""
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.onnx.helper.make_tensor_value_info(name, kind, shape)

    def inner(self, op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
        """Return a node inside a Scan, whose names must differ from those outside, too."""
        names = ([self.prefix + name for name in side] for side in (inputs, outputs))
        return self.onnx.helper.make_node(op, *names, **attributes)


def _import_onnx() -> Any:
    try:
        import onnx
        import onnx.numpy_helper
    except ImportError as error:
        raise ImportError(needs("to_onnx", "onnx", "onnx")) from error
    return onnx


def label_type(classes: NDArray[Any]) -> Any:
    """Return the type of labels in a graph."""
    if classes.dtype.kind in "iu":
        return np.uint64 if int(classes.max()) >= 2**63 else np.int64
    return {"b": np.bool_, "f": np.float64}.get(classes.dtype.kind, object)


def sums_suit(formula: Formula, dtype: str) -> bool:
    """Whether sums may be rounded to a type: kernels of distances whose points lie close."""
    if formula.sum not in ("squared", "absolute") or formula.magnifies:
        return False
    return formula.spread <= SPREAD[dtype]


def product_suffices(formula: Formula, dtype: str) -> bool:
    """Whether distances may come from a product, which loses eps * |p|^2.

    The root of Matérn-1/2 magnifies what is lost near 0, and there is one product only if all
    functions weigh the columns alike.
    """
    if formula.shapes is not None or formula.magnifies:
        return False
    return formula.spread <= SPREAD[dtype]


def meaning(formula: Formula, i: int) -> str:
    """Return what an input of a graph has to be."""
    if i in formula.truths:
        return "1 for yes (true), 0 for no (false), NaN if missing"
    if i in formula.texts:
        return 'text, "" if missing'
    if i in formula.dates:
        date = "days since 1970-01-01, the time of day as a fraction, no time zone"
        unit = date if formula.dates[i] == "date" else "hours since midnight, 8.5 for 08:30"
        return f"{unit}, NaN if missing"
    return "number" if i in formula.numbers[0] else "number, NaN if missing"
