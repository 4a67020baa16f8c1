"""The losses that Newton's method can use, by name."""

from __future__ import annotations

from leansvm.losses import Logistic, Loss, get_loss

# What Newton's method asks of a loss.
NEEDS = (
    "value",
    "derivative",
    "second_derivative",
    "conjugate",
    "smoothing_path",
    "domain",
    "max_curvature",
    "curvature_is_piecewise_constant",
)

# Losses by name, and what stands for those without a second derivative.
_CLASSIFIES = ("squared_hinge", "squared", "huber", "logistic")
_REGRESSES = ("huber", "squared")
_KINKED = {
    "hinge": "'huber' (delta) or 'logistic' (p)",
    "absolute": "'huber' with a small delta",
    "epsilon_insensitive": "'huber'",
}


def loss_for_newton(
    loss: str | Loss, margin: bool, delta: float | None, p: float | None, least: float = 0.0
) -> Loss:
    """Return the loss of that name, or the given one; refuse what Newton's method cannot use.

    In classification ``delta=None`` of "huber" is 1e-4 or, if that is larger, ``least``; ``p=None``
    of "logistic" is logistic regression's loss.
    """
    if not isinstance(loss, str):
        missing = [name for name in NEEDS if not hasattr(loss, name)]
        if missing:
            raise ValueError(
                f"loss={loss!r} does not work with Newton's method: it lacks {', '.join(missing)}. "
                f"Derive it from leansvm.losses.Loss, or use 'squared_hinge', 'squared', 'huber' "
                f"or 'logistic'."
            )
        if not (margin or getattr(loss, "symmetric", False)):
            raise ValueError(f"loss={loss!r} is not symmetric, as regression needs.")
        return loss
    if loss in _KINKED:
        raise ValueError(
            f"loss={loss!r} does not work with Newton's method: it lacks a second derivative. "
            f"Use {_KINKED[loss]}, which comes as close to it as you like."
        )
    known = _CLASSIFIES if margin else _REGRESSES
    if loss not in known:
        names = ", ".join(map(repr, known))
        raise ValueError(f"loss must be one of {names} or a Loss, got {loss!r}.")
    if not margin:
        return get_loss(loss, "regression", delta=delta)
    if loss == "logistic" and p is None:
        return Logistic(1.0, margin=0.0)
    delta = max(1e-4, least) if delta is None else delta
    return get_loss(loss, "classification", delta=delta, p=p)
