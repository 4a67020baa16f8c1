"""What callbacks of scikit-learn hear of a fit."""

from __future__ import annotations

from typing import Any


class Tasks:
    """Tells callbacks of steps by their names and, where work is planned, of percents."""

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        self.facts = {"estimator": estimator, "X": X, "y": y}
        self.percent, planned = 0, bool(estimator._planned(1, 1))
        most = 101 if planned else 0 if estimator._is_direct else None
        self.fit = self.steps = estimator._init_callback_context(max_subtasks=most)
        self.fit.call_on_fit_task_begin(**self.facts)
        if planned:  # steps are a task of their own, beside the percents
            self.steps = self.fit.subcontext(task_name="steps", max_subtasks=None)
            self.steps.call_on_fit_task_begin(estimator=estimator)

    def step(self, parent: Any, name: str) -> bool:
        """Tell of a step; return whether a callback asks to stop."""
        task, estimator = parent.subcontext(task_name=name), self.facts["estimator"]
        task.call_on_fit_task_begin(estimator=estimator)
        return bool(task.call_on_fit_task_end(estimator=estimator))

    def tell(self, share: float) -> None:
        """Tell how much of the fit is done: a task for every percent."""
        while self.percent < int(100 * share):
            self.percent += 1
            self.step(self.fit, "percent")

    def end(self) -> None:
        """Tell that the fit is over."""
        if self.steps is not self.fit:
            self.steps.call_on_fit_task_end(estimator=self.facts["estimator"])
        self.fit.call_on_fit_task_end(**self.facts, reconstruction_attributes={})
