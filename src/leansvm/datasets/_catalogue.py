"""The data sets the papers name: size, scaling and which paper uses them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """What is known about a data set before it is on the machine.

    Parameters
    ----------
    n_rows, n_test, n_features : int
        Rows to train, or all if there is no split; rows to test; columns.
    papers : str
        Who uses it.
    notes : str
        How its values are scaled.
    sparse : bool
        Whether it is stored as CSR.
    splits : str
        Sizes and number of the published splits, if there are many.
    """

    n_rows: int
    n_test: int
    n_features: int
    papers: str
    notes: str
    sparse: bool = False
    splits: str = ""

    @property
    def shape(self) -> str:
        """The size in words."""
        test = f" / {self.n_test:,}" if self.n_test else ""
        rows = f"{self.n_rows:,}{test} x {self.n_features:,}"
        extras = [self.splits] * bool(self.splits) + ["sparse"] * self.sparse
        return ", ".join([rows, *extras])


_INDICATORS = "0/1 indicators, as distributed by LIBSVM."
_IDA = "Standardised over the whole set by Raetsch; 100 published splits."
_WEKA = (
    "Raw numbers; nominal attributes one-hot, missing values filled by the mean or the most "
    "frequent value of the whole set."
)

CATALOGUE: dict[str, Entry] = {
    "a1a": Entry(1605, 30956, 123, "peng2016", _INDICATORS, sparse=True),
    "a9a": Entry(32561, 16281, 123, "zhou2013, zhou2016, joshi", _INDICATORS, sparse=True),
    "colon-cancer": Entry(62, 0, 2000, "peng2016", "Rows, then features standardised by LIBSVM."),
    "covtype": Entry(581012, 0, 54, "zhou2016", "Raw integers."),
    "ida-diabetis": Entry(768, 0, 8, "fang2019", _IDA, splits="100 splits of 468 / 300"),
    "ida-german": Entry(1000, 0, 20, "fang2019", _IDA, splits="100 splits of 700 / 300"),
    "ida-titanic": Entry(
        24,
        0,
        3,
        "fang2019",
        f"{_IDA} The 24 distinct patterns are stored once; indices repeat them.",
        splits="100 splits of 150 / 2,051",
    ),
    "ijcnn1": Entry(
        49990,
        91701,
        22,
        "zhou2013, zhou2016",
        "As distributed by LIBSVM, about [-1, 1]; the last 14990 training rows are its "
        "validation part.",
    ),
    "leukemia": Entry(38, 34, 7129, "peng2016", "Rows, then features standardised by LIBSVM."),
    "mnist": Entry(60000, 10000, 784, "zhou2016", "Raw pixels, 0 to 255."),
    "shuttle": Entry(43500, 14500, 9, "zhou2013, zhou2016", "Raw integers."),
    "splice": Entry(1000, 2175, 60, "peng2016", "Codes 1 to 4 of the nucleotides."),
    "synth": Entry(250, 1000, 2, "fang2019", "Ripley's synthetic data, raw."),
    "usps": Entry(7291, 2007, 256, "zhou2016", "Pixels in [-1, 1]; labels are the digits."),
    "vehicle": Entry(
        78823,
        19705,
        100,
        "zhou2013, zhou2016",
        "SensIT Vehicle (combined), scaled to about [-1, 1] by LIBSVM.",
    ),
    "w1a": Entry(2477, 47272, 300, "peng2016", _INDICATORS, sparse=True),
    "uci-breast-cancer": Entry(286, 0, 38, "joshi", _WEKA),
    "uci-breast-w": Entry(699, 0, 9, "joshi", _WEKA),
    "uci-credit-g": Entry(1000, 0, 59, "joshi", _WEKA),
    "uci-diabetes": Entry(768, 0, 8, "joshi", f"{_WEKA} The Pima set."),
    "uci-heart-c": Entry(303, 0, 22, "joshi", _WEKA),
    "uci-heart-h": Entry(294, 0, 21, "joshi", _WEKA),
    "uci-heart-statlog": Entry(270, 0, 13, "joshi", _WEKA),
    "uci-hepatitis": Entry(155, 0, 19, "joshi", _WEKA),
    "uci-ionosphere": Entry(351, 0, 33, "joshi", _WEKA),
    "uci-kr-vs-kp": Entry(3196, 0, 38, "joshi", _WEKA),
    "uci-mushroom": Entry(8124, 0, 110, "joshi", _WEKA),
    "uci-sick": Entry(3772, 0, 31, "joshi", _WEKA),
    "uci-sonar": Entry(208, 0, 60, "joshi", _WEKA),
    "uci-vote": Entry(435, 0, 16, "joshi", _WEKA),
}


def names() -> list[str]:
    """Return the names of all data sets of the catalogue.

    Returns
    -------
    list of str
        Sorted.

    Examples
    --------
    >>> from leansvm.datasets import names
    >>> names()[:3]
    ['a1a', 'a9a', 'colon-cancer']
    """
    return sorted(CATALOGUE)


def check_name(name: str) -> None:
    """Refuse a name that the catalogue does not have, with the nearest ones that it has."""
    if name in CATALOGUE:
        return
    near = difflib.get_close_matches(name, CATALOGUE, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names())}"
    raise ValueError(f"there is no data set {name!r}; {hint}")
