"""What differs between the versions of scikit-learn (1.6 and later), its wrappers, our pages.

Nothing else in the package asks which version is installed. What a version lacks is replaced here,
or an error names the version that has it.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, ClassVar

import sklearn
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if

VERSION = tuple(map(int, sklearn.__version__.split(".")[:2]))
HAS_CALLBACKS = VERSION >= (1, 9)
_OURS = ("leansvm", "sklearn", "contextlib")  # what lies between a user's line and a warning


def level_of_user() -> int:
    """Return the ``stacklevel`` for a warning that names the user's line, not one of ours."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    return level


# ---------------------------------------------------------------------- callbacks: 1.9


class _NoContext:
    """A context without callbacks: it tells nobody about the fit, and nobody asks to stop."""

    def call_on_fit_task_begin(self, **facts: Any) -> None:
        """Tell nobody."""

    def call_on_fit_task_end(self, **facts: Any) -> bool:
        """Tell nobody, and go on."""
        return False

    def subcontext(self, **facts: Any) -> _NoContext:
        """Return a context for a step of this task."""
        return self


def _refuse_callbacks(estimator: Any) -> bool:
    raise AttributeError(
        f"Callbacks need scikit-learn 1.9, and {sklearn.__version__} is installed: upgrade it "
        f"with pip install 'scikit-learn>=1.9'."
    )


class _NoCallbacks:
    """What scikit-learn's mixin offers to estimators, where scikit-learn has no callbacks."""

    @available_if(_refuse_callbacks)
    def set_callbacks(self, *callbacks: Any) -> Any:
        """Refuse, with the version that has callbacks."""

    def _init_callback_context(self, **facts: Any) -> _NoContext:
        return _NoContext()


CallbackSupport: Any = _NoCallbacks
if HAS_CALLBACKS:
    from sklearn.callback import CallbackSupportMixin

    CallbackSupport = CallbackSupportMixin


# ---------------------------------------------------------------------- array API: 1.7


def array_api_compat() -> Any:
    """Return scikit-learn's module for array libraries, which scikit-learn 1.6 does not have.

    With 1.6 this module would have to be installed separately, and then half of scikit-learn's own
    modules cannot be imported unless ``SCIPY_ARRAY_API=1`` is set.
    """
    if VERSION < (1, 7):
        raise ImportError(
            f"Arrays of other libraries need scikit-learn 1.7, and {sklearn.__version__} is "
            f"installed: upgrade it with pip install 'scikit-learn>=1.7', or pass NumPy arrays."
        )
    from sklearn.externals import array_api_compat

    return array_api_compat


# ---------------------------------------------------------------------- names of columns


def with_advice(error: Exception) -> Exception:
    """Add what to do to scikit-learn's error about the order of columns; leave other errors."""
    text = str(error)
    if "in the same order as they were in fit" not in text:
        return error
    return ValueError(
        f"{text.rstrip()}\nPass X[list(model.feature_names_in_)]. (Only models that were fitted on "
        f"text, dates or missing values find columns by their names.)"
    )


# ---------------------------------------------------------------------- models with a threshold


def split_threshold(model: Any) -> tuple[Any, float | None]:
    """Return the model inside a classifier with a threshold, and the threshold.

    That classifier is what `leansvm.model_selection.tune_threshold` returns: it predicts the second
    class if f(x) >= threshold. Other models, and those with a threshold for probabilities, come
    back as they are, with None.
    """
    if not type(model).__module__.startswith("sklearn."):
        return model, None
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

    threshold = None
    if isinstance(model, FixedThresholdClassifier | TunedThresholdClassifierCV):
        if getattr(model, "pos_label", None) is not None:
            return model, None
        if model.response_method != "decision_function":
            return model, None
        threshold = getattr(model, "best_threshold_", None)
        if threshold is None:
            threshold = getattr(model, "threshold", None)
        threshold = 0.0 if threshold in (None, "auto") else float(threshold)
        model = getattr(model, "estimator_", model.estimator)
    if isinstance(model, FrozenEstimator):
        model = model.estimator
    return model, threshold


# ---------------------------------------------------------------------- links in the HTML view


def documentation() -> str:
    """Return the address of the documentation, empty if there is none.

    That is the address which the installed package names (``[project.urls]``), or else the pages
    that ``make docs`` has built in the checkout.
    """
    try:
        addresses = metadata("leansvm").get_all("Project-URL") or []
    except PackageNotFoundError:
        addresses = []
    for entry in addresses:
        label, _, address = entry.partition(", ")
        if label == "Documentation":
            return address.rstrip("/")
    built = Path(__file__).resolve().parents[2] / "docs" / "_build" / "html"
    return built.as_uri() if (built / "index.html").is_file() else ""


class Documented(BaseEstimator):
    """An estimator whose HTML view links to its page in our documentation."""

    _doc_link_module = "leansvm"
    _documented_in: ClassVar[str] = "leansvm"  # the module from which users import it

    @property
    def _doc_link_template(self) -> str:
        address = documentation().replace("{", "{{").replace("}", "}}")
        page = f"{self._documented_in}.{{estimator_name}}.html"
        return f"{address}/generated/{page}" if address else ""
