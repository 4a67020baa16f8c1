"""What pickles, copies and model files hold of an estimator."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from leansvm._packed import packed

_IN_MEMORY = frozenset({"_rows", "_answers"})  # pickles and files never hold these


class Saved:
    """Adds `save`, and what pickles and files hold: what prediction needs, or all of the state."""

    # attributes that prediction does not need: files and pickles hold them if ``keep_state``
    _training_only: ClassVar[frozenset[str]] = frozenset({"loo_residuals_", "_left_out"})
    keep_state: bool | None = None
    _has_batches: bool = False  # True in a model that `partial_fit` made
    _saved_small: ClassVar[bool] = False  # True in a model whose file lacks `_training_only`

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the fitted model to a file without pickle; `leansvm.load` reads it.

        Parameters
        ----------
        path : path-like
            File to write; an existing one is replaced.
        **options
            ``metadata`` and ``trusted``, as in `leansvm.persistence.save`.
        """
        from leansvm.persistence import save

        save(self, path, **options)

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickles and model files hold: what prediction needs, or all of the state."""
        state: Any = super().__getstate__()
        left_out = frozenset() if self._keeps_state else self._training_only
        found = {name: value for name, value in state.items() if name not in left_out | _IN_MEMORY}
        return found if left_out.isdisjoint(state) else found | {"_saved_small": True}

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return what pickle writes; arrays of a model without its state are compressed."""
        reduced: Any = super().__reduce_ex__(protocol)
        make, arguments, state, *rest = reduced
        return make, arguments, state if self._keeps_state else packed(state), *rest

    @property
    def _keeps_state(self) -> bool:
        """Whether files hold what `partial_fit` and merging need."""
        return bool(self._has_batches if self.keep_state is None else self.keep_state)

    def __copy__(self) -> Any:
        """Return a copy in memory, with all attributes."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin
