"""A simulated table like those of users: numbers, categories, missing values, useless columns.

Who leaves is drawn with known odds, so that what a model finds can be compared with the truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm._extras import needs


def make_customers(
    n_samples: int = 1200, *, random_state: int | np.random.Generator | None = None
) -> Any:
    """Return a data frame of simulated customers, some of whom leave.

    Customers leave more often if they are new, call the support often, are young or old, or pay
    much in the plan "basic"; in the other plans the fee hardly matters. Gigabytes and region have
    no effect. The log-odds of leaving are

        9 exp(-months / 8) + 2 calls + 3 ((age - 45) / 18)² + a (fee - 35) - 8

    with a = 0.36 in the plan "basic" and 0.03 in the others.

    Parameters
    ----------
    n_samples : int, default=1200
        Rows.
    random_state : int, Generator or None, default=None
        Seed of the draw.

    Returns
    -------
    pandas.DataFrame
        Columns age, months, fee, calls, gigabytes (numbers), plan, region (texts), leaves ("no" or
        "yes"). About 10 % of age, 5 % of gigabytes and 5 % of region are missing.

    Examples
    --------
    >>> from leansvm.datasets import make_customers
    >>> customers = make_customers(random_state=0)
    >>> list(customers.columns)
    ['age', 'months', 'fee', 'calls', 'gigabytes', 'plan', 'region', 'leaves']
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(needs("make_customers", "pandas", "cli")) from error

    rng = np.random.default_rng(random_state)
    age = rng.integers(18, 81, n_samples).astype(np.float64)
    months = rng.integers(1, 73, n_samples)
    plan = rng.choice(["basic", "family", "plus"], n_samples, p=[0.5, 0.2, 0.3])
    fee = np.round(rng.uniform(15, 55, n_samples), 1)
    calls = rng.poisson(1.2, n_samples)
    gigabytes = np.round(rng.lognormal(2.5, 0.8, n_samples), 1)
    region = rng.choice(["east", "north", "south", "west"], n_samples).astype(object)
    slope = np.where(plan == "basic", 0.36, 0.03)
    odds = 9 * np.exp(-months / 8) + 2 * calls + 3 * ((age - 45) / 18) ** 2 + slope * (fee - 35) - 8
    leaves = rng.uniform(size=n_samples) < 1 / (1 + np.exp(-odds))
    age[rng.uniform(size=n_samples) < 0.10] = np.nan
    gigabytes[rng.uniform(size=n_samples) < 0.05] = np.nan
    region[rng.uniform(size=n_samples) < 0.05] = None
    return pd.DataFrame(
        {
            "age": age,
            "months": months,
            "fee": fee,
            "calls": calls,
            "gigabytes": gigabytes,
            "plan": plan,
            "region": region,
            "leaves": np.where(leaves, "yes", "no"),
        }
    )
