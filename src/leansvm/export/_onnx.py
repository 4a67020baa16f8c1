"""A model as an ONNX graph of core operators (opset 18), in float32 or float64.

Distances come from one matrix product, |u - p|^2 = |u|^2 + |p|^2 - 2 u'p, if that is exact
enough; other sums are a Scan over the functions. Texts need ai.onnx.ml's LabelEncoder.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from leansvm.estimators.targets import LARGEST_LOG
from leansvm.export._checks import check_categories, check_numbers
from leansvm.export._columns import MISSING, Column
from leansvm.export._formula import Formula, formula_of
from leansvm.export._onnx_nodes import (
    SPREAD,
    GraphNodes,
    label_type,
    meaning,
    product_suffices,
    sums_suit,
)
from leansvm.export._store import rounding_loss, stored

OPSET, _ML_OPSET, _IR = 18, 3, 8
_FAR = 1e15  # scaled distances beyond it are infinite for every kernel, and their squares are not
_LITTLE = 1e-3  # change of f, as a share of its spread, up to which a graph computes in float32


def to_onnx(model: Any, *, dtype: str = "float32", metadata: dict[str, Any] | None = None) -> Any:
    """Write a fitted model as an ONNX graph.

    Parameters
    ----------
    model : estimator
        Fitted estimator of leansvm, a pipeline that ends with one, or what `tune_threshold`
        returned.
    dtype : {"float32", "float64"}, default="float32"
        Type of inputs and outputs. Inside, the graph computes in float64 if float32 would lose
        digits.
    metadata : dict, default=None
        Facts to keep in the graph, of types that JSON has.

    Returns
    -------
    onnx.ModelProto
        Its input is ``X`` of shape (n_rows, n_features). If the model takes texts or dates, every
        feature is an input of its own, with its name and shape (n_rows, 1): "" is a missing text, a
        date is given as days since 1970 and a time of day as hours, both in float64 for any
        ``dtype``. Outputs of a classifier: ``label``, ``scores`` (as from `decision_function`) and,
        if calibrated, ``probabilities``; of a regressor ``predictions``; of a `KernelBasis`
        ``features``. Write the graph with ``path.write_bytes(graph.SerializeToString())``.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import LSSVR
    >>> from leansvm.export import to_onnx
    >>> X = np.linspace(0, 1, 5)[:, None]
    >>> graph = to_onnx(LSSVR().fit(X, X[:, 0]), dtype="float64")  # doctest: +SKIP
    >>> session = onnxruntime.InferenceSession(graph.SerializeToString())  # doctest: +SKIP
    >>> (predictions,) = session.run(None, {"X": X})  # doctest: +SKIP
    """
    if dtype not in SPREAD:
        raise ValueError(f"dtype must be 'float32' or 'float64', got {dtype!r}.")
    formula = formula_of(model, metadata)
    if formula.store != "float64":
        raise ValueError("A compressed model cannot become an ONNX graph: give the model itself.")
    return Graph(formula, dtype).model()


class Graph(GraphNodes):
    """The graph of a formula.

    Parameters
    ----------
    formula : Formula
        Of the model.
    dtype : {"float32", "float64"}
        Type of inputs and outputs.
    in_pairs : bool
        Return two outputs of a classifier, as skl2onnx wants them: the label, and probabilities (or
        scores) with a column for every class; and columns for a regressor's single output.
    """

    def __init__(self, formula: Formula, dtype: str, in_pairs: bool = False) -> None:
        suits = all(sums_suit(t, "float32") for t in formula.terms)
        single = dtype == "float32" and suits and not formula.dates  # which it rounds to minutes
        single = single and formula.scale is None  # the exponential magnifies rounding
        if single:  # coefficients that are large and cancel need more digits
            single = rounding_loss(formula, stored(formula, "float32"))[0] < _LITTLE
        super().__init__("float32" if single else "float64", formula.inputs)
        self.formula, self.dtype, self.in_pairs = formula, dtype, in_pairs
        self.term = formula  # the one that nodes are added for
        check_numbers(formula, self.work)
        check_categories(formula, dtype)

    def model(self) -> Any:
        """Return the whole graph with its facts."""
        inputs, read = self._inputs()
        f = ""
        for term in self.formula.terms:
            self.term = term
            more = self._values(self._columns(read))
            f = self.add("Add", f, more) if f else more
        outputs = self._outputs(self._refused(self._units(f), read))
        for name in {info.name for info in inputs} & {info.name for info in outputs}:
            raise ValueError(
                f"The feature {name!r} has the name of an output of the graph: rename the feature."
            )
        helper, facts = self.onnx.helper, self.formula.facts
        graph = helper.make_graph(
            self.nodes, facts["model"], inputs, outputs, initializer=self.constants
        )
        versions = [helper.make_opsetid("", OPSET)]
        if self.formula.texts:
            versions.append(helper.make_opsetid("ai.onnx.ml", _ML_OPSET))
        model = helper.make_model(
            graph,
            opset_imports=versions,
            ir_version=_IR,
            producer_name="leansvm",
            producer_version=facts["leansvm"],
        )
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()}
        helper.set_model_props(model, texts)
        self.onnx.checker.check_model(model)
        return model

    # ------------------------------------------------------------------ columns

    def _inputs(self) -> tuple[list[Any], dict[int, str]]:
        """Return the inputs of the graph, and for each input value the name of its column."""
        formula, texts = self.formula, self.formula.texts
        if not (texts or formula.dates):
            info = self.info("X", self.dtype, [None, len(formula.inputs)])
            info.doc_string = "columns: " + ", ".join(formula.inputs)
            return [info], {}
        names = dict(enumerate(formula.inputs))
        if "" in names.values() or len(set(names.values())) < len(names):
            raise ValueError(
                "Some features are text or dates, so every feature is an input of the graph with "
                "its name: give each feature a different name that is not empty."
            )
        kinds = dict.fromkeys(texts, object) | dict.fromkeys(formula.dates, np.float64)
        infos = [self.info(name, kinds.get(i, self.dtype), [None, 1]) for i, name in names.items()]
        for i, info in enumerate(infos):
            info.doc_string = meaning(formula, i)
        return infos, names

    def _columns(self, read: dict[int, str]) -> str:
        """Return u, (n_rows, n_columns)."""
        formula = self.term
        numbers = formula.columns[: formula.n_numbers]
        parts = [self._numbers(read, list(numbers))] if numbers else []
        rest = formula.columns[len(numbers) :]
        for source in dict.fromkeys(column.source for column in rest):
            mine = [column for column in rest if column.source == source]
            is_date = source in self.formula.dates
            found = self.cycles(read[source], mine) if is_date else self._ones(read, mine)
            parts.append(self._moved(found, mine))
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=1)

    def _refused(self, f: str, read: dict[int, str]) -> str:
        """Return f + x - x: NaN if a number is infinite, or if a missing one is not allowed."""
        for sources, may_miss in zip(self.formula.numbers, (False, True), strict=True):
            if sources:
                x = self._given_numbers(read, sources)
                if may_miss:
                    x = self.add("Where", self.add("IsNaN", x), self.constant(0.0), x)
                zeros = self.add("Sub", x, x)
                zero = self.add("ReduceSum", zeros, self.constant([1], np.int64), keepdims=1)
                f = self.add("Add", f, zero)
        return f

    def _given_numbers(self, read: dict[int, str], sources: list[int]) -> str:
        """Return input values that are numbers, (n_rows, n_sources)."""
        days, casts = self.formula.dates, self.work != self.dtype
        if days and casts:
            given = [read[s] if s in days else self.cast(read[s], self.work) for s in sources]
            x = self.add("Concat", *given, axis=1)
        elif read:
            x = self.add("Concat", *(read[source] for source in sources), axis=1)
        elif sources == list(range(len(self.term.inputs))):
            x = "X"
        else:
            x = self.add("Gather", "X", self.constant(sources, np.int64), axis=1)
        return self.cast(x, self.work) if casts and not days else x

    def _numbers(self, read: dict[int, str], columns: list[Column]) -> str:
        x = self._given_numbers(read, [column.source for column in columns])
        if any(column.fill is not None for column in columns):
            fills = [np.nan if column.fill is None else column.fill for column in columns]
            x = self.add("Where", self.add("IsNaN", x), self.constant([fills]), x)
        return self._moved(x, columns)

    def _moved(self, x: str, columns: list[Column]) -> str:
        """Return (x - center) * scale within the bounds."""
        centers, scales = ([getattr(c, n) for c in columns] for n in ("center", "scale"))
        if any(centers):
            x = self.add("Sub", x, self.constant([centers]))
        if any(scale != 1.0 for scale in scales):
            x = self.add("Mul", x, self.constant([scales]))
        lower, upper = np.transpose([column.bounds() for column in columns])
        if self.term.sum == "squared":
            far = [_FAR if column.knots is None else np.inf for column in columns]
            lower, upper = np.maximum(lower, np.negative(far)), np.minimum(upper, far)
        if np.isfinite(lower).any() or np.isfinite(upper).any():
            x = self.add("Max", x, self.constant([lower]))
            x = self.add("Min", x, self.constant([upper]))
        return self._curved(x, columns)

    def _curved(self, x: str, columns: list[Column]) -> str:
        """Return x with the curves of the columns that have one, which come last."""
        knots = [np.array(column.knots) for column in columns if column.knots is not None]
        if not knots:
            return x
        rest = len(columns) - len(knots)
        found = self.curves(self.columns_of(x, rest, len(columns)), knots)
        return self.add("Concat", self.columns_of(x, 0, rest), found, axis=1) if rest else found

    def _ones(self, read: dict[int, str], columns: list[Column]) -> str:
        """Return the columns of one input value: which known value it is, times a table."""
        source, fill = columns[0].source, columns[0].fill
        texts = self.term.texts.get(source)
        if texts is None:
            known, equal = self._equal_numbers(read.get(source), source, columns)
        else:
            known, equal = self._equal_texts(read[source], texts)
        table, bias = np.zeros((len(known), len(columns))), np.zeros(len(columns))
        for j, column in enumerate(columns):
            as_filled = fill is not None and column.kind != "missing"
            keys = [fill if value is MISSING and as_filled else value for value in known]
            bias[j] = column.number_of(None)
            table[:, j] = [column.number_of(key) - bias[j] for key in keys]
        return self.add("Gemm", equal, self.constant(table), self.constant(bias))

    def _equal_numbers(
        self, value: str | None, source: int, columns: list[Column]
    ) -> tuple[list[Any], str]:
        """Return known numbers and whether the value is each of them; the last one is missing."""
        if value is None:
            value = self.add("Gather", "X", self.constant([source], np.int64), axis=1)
        numbers = sorted({v for c in columns for v in c.categories if v is not MISSING})
        missing = self.cast(self.add("IsNaN", value), self.work)
        if not numbers:
            return [MISSING], missing
        equal = self.add("Equal", value, self.constant([numbers], self.dtype))
        both = self.add("Concat", self.cast(equal, self.work), missing, axis=1)
        return [*numbers, MISSING], both

    def _equal_texts(self, value: str, texts: list[str]) -> tuple[list[Any], str]:
        """Return known texts and whether the value is each of them; "" is a missing one."""
        known: list[Any] = [*texts] if "" in texts else [*texts, MISSING]
        code = self.add(
            "LabelEncoder",
            value,
            domain="ai.onnx.ml",
            keys_strings=["" if text is MISSING else text for text in known],
            values_int64s=list(range(len(known))),
            default_int64=-1,
        )
        places = self.constant([list(range(len(known)))], np.int64)
        return known, self.cast(self.add("Equal", code, places), self.work)

    # ------------------------------------------------------------------ values

    def _values(self, u: str) -> str:
        """Return f, (n_rows, n_outputs)."""
        formula = self.term
        if formula.coef is None:
            weights, bias = self.constant(formula.points), self.constant(formula.intercept)
            return self.add("Gemm", u, weights, bias, transB=1)
        coef, bias = self.constant(formula.coef), self.constant(formula.intercept)
        if formula.sum in ("dot", "unit-dot") or self._by_product():
            return self.add("Gemm", self._outer(self._products(u)), coef, bias)
        return self.add("Gemm", self._outer(self._scan(u)), coef, bias, transA=1)

    def _by_product(self) -> bool:
        return self.term.sum == "squared" and product_suffices(self.term, self.work)

    def _products(self, u: str) -> str:
        """Return t of every row and function, (n_rows, n_functions), from a matrix product."""
        points = self.term.points
        if self.term.sum == "unit-dot":  # by the largest value first: no square overflows
            for size, given in (("ReduceMax", "Abs"), ("ReduceL2", "Identity")):
                axis = self.constant([1], np.int64)
                norms = self.add(size, self.add(given, u), axis, keepdims=1)
                nothing = self.cast(self.add("Equal", norms, self.constant(0.0)), self.work)
                u = self.add("Div", u, self.add("Add", norms, nothing))  # 0 / 1 for rows of zeros
        if self.term.sum != "squared":
            return self.add("MatMul", u, self.constant(points.T))
        # |u - p|^2 = [u, |u|^2, 1] [-2 p, 1, |p|^2]'
        squares = self.add("ReduceSumSquare", u, self.constant([1], np.int64), keepdims=1)
        one = self.add("Add", self.add("Mul", squares, self.constant(0.0)), self.constant(1.0))
        left = self.add("Concat", u, squares, one, axis=1)
        norms = np.einsum("ij,ij->i", points, points)
        right = np.vstack([-2.0 * points.T, np.ones(len(points)), norms])
        if self.term.outer == "exp":  # takes -t; rounding above 0 changes e^-t by no more
            return self.add("MatMul", left, self.constant(-right))
        return self.add("Max", self.add("MatMul", left, self.constant(right)), self.constant(0.0))

    def _scan(self, u: str) -> str:
        """Return t, (n_functions, n_rows), one function after the other: no product gives it."""
        formula = self.term
        tables = [formula.points]
        if formula.shapes is not None:  # w with sum |w (u - p)| or sum (w (u - p))^2
            squared = formula.sum == "squared"
            tables.append(np.sqrt(formula.shapes) if squared else formula.shapes)
        scanned = [self.constant(table) for table in tables]
        if formula.sum == "chi2":  # NaN for features below 0
            root = self.add("Sqrt", u)
            u = self.add("Add", u, self.add("Sub", root, root))
        body = self.scan_body(formula.sum, len(tables) == 2)
        name = f"{self.prefix}v{len(self.nodes)}"
        node = self.onnx.helper.make_node(
            "Scan", [u, *scanned], [f"{name}_u", name], f"n_{name}", body=body
        )
        node.attribute.append(self.onnx.helper.make_attribute("num_scan_inputs", len(scanned)))
        self.nodes.append(node)
        return self.add("Neg", name) if formula.outer == "exp" else name

    def _outer(self, t: str) -> str:
        """Return g(t); if that is e^-t, the argument is -t."""
        formula, outer = self.term, self.term.outer
        if outer == "identity":
            return t
        if outer in ("power", "tanh"):
            t = self.add("Add", t, self.constant(formula.coef0))
            if outer == "tanh":
                return self.add("Tanh", t)
            return self.add("Pow", t, self.constant(formula.degree))
        if outer == "simplex":
            return self.add("Max", self.add("Sub", self.constant(1.0), t), self.constant(0.0))
        if outer == "exp":
            return self.add("Exp", t)
        # (1 + a r + b r^2) e^-r; beyond 500 it is 0 and r^2 e^-r would be no number
        linear, quadratic = formula.polynomial
        t = self.add("Min", t, self.constant(500.0**2))
        r = self.add("Sqrt", t)
        decay = self.add("Exp", self.add("Neg", r))
        if formula.magnifies:
            return decay
        scaled = r if linear == 1.0 else self.add("Mul", r, self.constant(linear))
        factor = self.add("Add", scaled, self.constant(1.0))
        if quadratic:
            factor = self.add("Add", factor, self.add("Mul", t, self.constant(quadratic)))
        return self.add("Mul", factor, decay)

    # ------------------------------------------------------------------ outputs

    def _units(self, f: str) -> str:
        """Return f in units of the target."""
        scale = self.formula.scale
        if scale is None:
            return f
        if not scale:
            return self.add("Exp", self.add("Min", f, self.constant(LARGEST_LOG)))
        return self.curves(f, [np.array(knots)[::-1] for knots in scale])

    def _outputs(self, f: str) -> list[Any]:
        formula = self.formula
        if formula.classes is None:
            flat = formula.single and formula.outputs == 1 and not self.in_pairs
            name = "features" if formula.facts["model"] == "KernelBasis" else "predictions"
            shape = [None] if flat else [None, formula.outputs]
            self.named(self._given(self.flat(f) if flat else f), name)
            return [self.info(name, self.dtype, shape)]
        two, n_classes = formula.outputs == 1, len(formula.classes)
        kind = label_type(formula.classes)
        if two:
            limit = formula.threshold
            test = "Greater" if limit is None else "GreaterOrEqual"
            number = self.cast(self.add(test, self.flat(f), self.constant(limit or 0.0)), "int64")
        else:
            number = self.add("ArgMax", f, axis=1, keepdims=0)
        # there is no label for NaN: a place beyond the last class is an error
        none = self.add("IsNaN", self.flat(self.columns_of(f, 0, 1)))
        number = self.add("Where", none, self.constant(n_classes, np.int64), number)
        labels = self.constant(formula.classes.astype(kind), kind)
        self.named(self.add("Gather", labels, number), "label")
        outputs = [self.info("label", kind, [None])]
        if not self.in_pairs:
            self.named(self._given(self.flat(f) if two else f), "scores")
            shape = [None] if two else [None, n_classes]
            outputs.append(self.info("scores", self.dtype, shape))
        elif formula.slopes is None:
            both = self.add("Concat", self.add("Neg", f), f, axis=1) if two else f
            self.named(self._given(both), "scores")
            outputs.append(self.info("scores", self.dtype, [None, n_classes]))
        if formula.slopes is not None:
            self.named(self._given(self.probabilities(f, two, *formula.log_odds)), "probabilities")
            outputs.append(self.info("probabilities", self.dtype, [None, n_classes]))
        return outputs

    def _given(self, value: str) -> str:
        return value if self.work == self.dtype else self.cast(value, self.dtype)
