"""Numbers and categories that a type of an export does not hold are refused."""

from __future__ import annotations

import numpy as np

from leansvm.export._formula import Formula


def check_numbers(formula: Formula, dtype: str) -> None:
    """Refuse a type for which a number of the formula is too large, or a scale too small."""
    for other in formula.others:
        check_numbers(other, dtype)
    numbers = formula.columns[: formula.n_numbers]
    scales = [np.array([column.scale for column in numbers])]
    scales += [] if formula.shapes is None else [formula.shapes.ravel()]
    others = [np.array([v for c in numbers for v in (c.center, *c.bounds(), c.fill or 0.0)])]
    others += [formula.points.ravel(), formula.intercept]
    others += [] if formula.coef is None else [formula.coef.ravel()]
    others += [np.ravel(column.knots) for column in numbers if column.knots is not None]
    limits = np.finfo(dtype)
    most, least = float(limits.max), float(limits.smallest_normal)
    sizes = np.abs(np.concatenate([*scales, *others]))
    large = sizes[np.isfinite(sizes) & (sizes > most)]
    sizes = np.abs(scales[0])
    small = sizes[(sizes > 0) & (sizes < least)]
    for size in (*large, *small):
        raise ValueError(
            f"The model has the number {size:.3g}, which is out of range for {dtype}: use float64, "
            f"or scale the features before the fit."
        )


def check_categories(formula: Formula, dtype: str) -> None:
    """Refuse categories that are numbers so large that their neighbours are equal in a type."""
    limit = 2.0 / float(np.finfo(dtype).eps)  # 2^24 of float32, 2^53 of float64
    for column in (column for term in formula.terms for column in term.columns):
        for value in column.categories:
            if isinstance(value, float) and abs(value) >= limit:
                way_out = "use float64, or " if limit < 2.0**53 else ""
                raise ValueError(
                    f"{formula.inputs[column.source]}: {dtype} cannot distinguish the category "
                    f"{value:.0f} from the next number: {way_out}turn these categories into text."
                )
