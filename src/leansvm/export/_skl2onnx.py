"""Converters for skl2onnx, which then turns pipelines that end in our machines into graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm._extras import needs
from leansvm.export._formula import formula_of
from leansvm.export._onnx import Graph
from leansvm.export._onnx_nodes import label_type


def register_onnx() -> None:
    """Make leansvm's machines and `KernelBasis` known to skl2onnx.

    Afterwards ``skl2onnx.to_onnx`` converts pipelines that hold them, with any step that skl2onnx
    knows. `to_onnx` does without skl2onnx, for the steps that the guide lists.

    Examples
    --------
    >>> from leansvm.export import register_onnx
    >>> register_onnx()  # doctest: +SKIP
    >>> graph = skl2onnx.to_onnx(pipeline, X[:1])  # doctest: +SKIP
    """
    try:
        from skl2onnx import update_registered_converter
    except ImportError as error:
        raise ImportError(needs("register_onnx", "skl2onnx", "onnx")) from error
    import leansvm
    from leansvm.estimators.predict import Classifier

    for name in leansvm.__all__:
        kind = getattr(leansvm, name)
        if not (isinstance(kind, type) and hasattr(kind, "fit")):
            continue
        zipmap = {"zipmap": [True, False, "columns"]}
        update_registered_converter(
            kind,
            f"Leansvm{name}",
            _output_types,
            _convert,
            options=zipmap if issubclass(kind, Classifier) else None,
        )


def _output_types(operator: Any) -> None:
    """Tell skl2onnx the types and shapes of the outputs."""
    from skl2onnx.common.data_types import (
        BooleanTensorType,
        DoubleTensorType,
        Int64TensorType,
        StringTensorType,
        UInt64TensorType,
        guess_tensor_type,
    )

    formula = formula_of(operator.raw_operator)
    rows = operator.inputs[0].get_first_dimension()
    numbers = guess_tensor_type(operator.inputs[0].type)
    if formula.classes is None:
        numbers.shape = [rows, formula.outputs]
        operator.outputs[0].type = numbers
        return
    kinds = {
        np.int64: Int64TensorType,
        np.uint64: UInt64TensorType,
        np.bool_: BooleanTensorType,
        np.float64: DoubleTensorType,
        object: StringTensorType,
    }
    operator.outputs[0].type = kinds[label_type(formula.classes)]([rows])
    numbers.shape = [rows, len(formula.classes)]
    operator.outputs[1].type = numbers


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the graph of a machine to the graph of the pipeline."""
    from skl2onnx.common.data_types import DoubleTensorType
    from skl2onnx.helpers.integration import add_onnx_graph

    double = isinstance(operator.inputs[0].type, DoubleTensorType)
    dtype = "float64" if double else "float32"
    formula = formula_of(operator.raw_operator)
    if formula.texts or formula.dates:
        raise ValueError(
            "skl2onnx supports only numbers, but this model was fitted on text or dates: use "
            "leansvm.export.to_onnx, or put a leansvm.tables.TableEncoder before the estimator."
        )
    add_onnx_graph(scope, operator, container, Graph(formula, dtype, True).model())
