"""The sparse machines with one gamma for all features and GCV as defaults: nothing is learned.

For tests of everything but the defaults: learning takes a fraction of a second a fit.
"""

import inspect

import leansvm

DEFAULTS = {"C": "gcv", "kernel": "rbf", "gamma": "scale"}


def plain(base):
    signature = inspect.signature(base.__init__)
    parameters = [
        p.replace(default=DEFAULTS.get(p.name, p.default)) for p in signature.parameters.values()
    ]
    signature = signature.replace(parameters=parameters)

    def init(self, *args, **params):
        bound = signature.bind(self, *args, **params)
        bound.apply_defaults()
        base.__init__(*bound.args, **bound.kwargs)

    init.__signature__ = signature
    return type(base.__name__, (base,), {"__init__": init, "__module__": __name__})


SparseLSSVC, SparseLSSVR = plain(leansvm.SparseLSSVC), plain(leansvm.SparseLSSVR)
