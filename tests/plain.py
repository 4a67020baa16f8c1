"""`SparseLSSVC` and `SparseLSSVR` with one gamma for all features and C by GCV: nothing is learned.

For tests of everything but the defaults, which have tests of their own
(`tests/estimators/test_defaults.py`): learning takes a fraction of a second a fit.
"""

import inspect

from leansvm import SparseLSSVC, SparseLSSVR

FIXED = {"C": "gcv", "kernel": "rbf", "gamma": "scale"}


def _with_fixed_kernel(base):
    """Return a subclass whose defaults are those of FIXED."""
    signature = inspect.signature(base.__init__)
    parameters = [
        p.replace(default=FIXED.get(p.name, p.default)) for p in signature.parameters.values()
    ]
    signature = signature.replace(parameters=parameters)

    def init(self, *args, **params):
        bound = signature.bind(self, *args, **params)
        bound.apply_defaults()
        base.__init__(*bound.args, **bound.kwargs)

    init.__signature__ = signature
    return type(f"Plain{base.__name__}", (base,), {"__init__": init, "__module__": __name__})


PlainSparseLSSVC = _with_fixed_kernel(SparseLSSVC)
PlainSparseLSSVR = _with_fixed_kernel(SparseLSSVR)
