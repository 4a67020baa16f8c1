"""Fitted models outside Python: ONNX graphs, C headers and JavaScript modules."""

from leansvm.export._c import to_c
from leansvm.export._js import to_js
from leansvm.export._onnx import to_onnx
from leansvm.export._run import Check, MissingToolError, check
from leansvm.export._skl2onnx import register_onnx
from leansvm.export._store import Compressed, compress

__all__ = [
    "Check",
    "Compressed",
    "MissingToolError",
    "check",
    "compress",
    "register_onnx",
    "to_c",
    "to_js",
    "to_onnx",
]
