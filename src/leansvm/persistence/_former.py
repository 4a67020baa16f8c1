"""Classes under the names they had in earlier versions, so that older model files load.

A file names the module of every class in it. Here are the names that are gone, with the classes
they mean now; a file may not name anything else that the other checks would refuse.
"""

from __future__ import annotations

from typing import Any

from leansvm import low_rank
from leansvm.basis.features import KernelFeatures
from leansvm.dual.active_set import ActiveSet
from leansvm.persistence._schema import nodes_of
from leansvm.ridge.kfold import FoldSums, KFoldSums
from leansvm.ridge.sums import Sums

FORMER_NAMES: dict[str, type] = {
    "leansvm.functions.rbf.RBF": low_rank.RBF,
    "leansvm.functions.robust_rbf.RobustRBF": low_rank.RobustRBF,
    "leansvm.functions.simplex.Simplex": low_rank.Simplex,
    "leansvm.solvers.active_set.ActiveSet": ActiveSet,
    "leansvm.solvers.features.KernelFeatures": KernelFeatures,
    "leansvm.solvers.kfold.FoldSums": FoldSums,
    "leansvm.solvers.kfold.KFoldSums": KFoldSums,
    "leansvm.solvers.sums.Sums": Sums,
}


def with_present_names(schema: Any) -> Any:
    """Replace former names of classes in a schema, which is changed, by those of today."""
    for node in nodes_of(schema):
        kind = FORMER_NAMES.get(f"{node['__module__']}.{node['__class__']}")
        if kind is not None:
            node["__module__"], node["__class__"] = kind.__module__, kind.__qualname__
    return schema
