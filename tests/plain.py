"""`SparseLSSVC`, `SparseLSSVR` (C by GCV) and `ReducedSVC` (squared hinge) with one plain gamma.

For tests of everything but the defaults, which have tests of their own
(`tests/estimators/test_defaults.py`): learning takes a fraction of a second a fit.
"""

import inspect

from leansvm import ReducedSVC, SparseLSSVC, SparseLSSVR

FIXED = {"C": "gcv", "kernel": "rbf", "gamma": "scale"}
HINGE = {"kernel": "rbf", "gamma": "scale", "loss": "squared_hinge"}


def _with_defaults(base, defaults):
    """Return a subclass with other defaults."""
    signature = inspect.signature(base.__init__)
    parameters = [
        p.replace(default=defaults.get(p.name, p.default)) for p in signature.parameters.values()
    ]
    signature = signature.replace(parameters=parameters)

    def init(self, *args, **params):
        bound = signature.bind(self, *args, **params)
        bound.apply_defaults()
        base.__init__(*bound.args, **bound.kwargs)

    init.__signature__ = signature
    return type(f"Plain{base.__name__}", (base,), {"__init__": init, "__module__": __name__})


PlainSparseLSSVC = _with_defaults(SparseLSSVC, FIXED)
PlainSparseLSSVR = _with_defaults(SparseLSSVR, FIXED)
PlainReducedSVC = _with_defaults(ReducedSVC, HINGE)
