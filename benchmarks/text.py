"""Texts as TF-IDF rows: a default fit beside logistic regression.

`python -m benchmarks.text` prints seconds and accuracies on made documents.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

_TOPICS, _WORDS = 5, 8000


def documents(n_rows: int = 3000, n_words: int = 80, seed: int = 0) -> tuple[Any, Any]:
    """Return TF-IDF rows and topics: overlapping topics over a vocabulary with Zipf's law."""
    rng = np.random.default_rng(seed)
    usual = 1.0 / np.arange(1, _WORDS + 1)
    usual /= usual.sum()
    topics = np.arange(_TOPICS)
    # a topic prefers some words; a document is half its topic, half another topic or none
    favour = usual * np.exp(1.5 * rng.normal(size=(_TOPICS, _WORDS)))
    favour /= favour.sum(axis=1, keepdims=True)
    y, other = rng.choice(topics, n_rows), rng.choice(topics, n_rows)
    lengths, rows = rng.poisson(n_words, n_rows) + 5, []
    for own, second, length in zip(y, other, lengths, strict=True):
        share = 0.25 * favour[own] + 0.2 * favour[second] + 0.55 * usual
        rows.append(sparse.csr_matrix(rng.multinomial(length, share)))
    counts = sparse.vstack(rows, format="csr")
    counts = counts[:, np.flatnonzero(np.asarray(counts.sum(axis=0)).ravel())]
    return TfidfTransformer().fit_transform(counts), y


def main() -> None:
    """Fit and print."""
    from sklearn.linear_model import LogisticRegression

    from leansvm import SparseLSSVC

    X, y = documents(6000)
    print(f"{X.shape[0] // 2} x {X.shape[1]}, {X.nnz / X.shape[0]:.0f} words a row")
    for model in (LogisticRegression(max_iter=1000), SparseLSSVC(random_state=0)):
        start = time.perf_counter()
        model.fit(X[:3000], y[:3000])
        seconds = time.perf_counter() - start
        right = 100 * model.score(X[3000:], y[3000:])
        print(f"{type(model).__name__}: {seconds:.1f} s, {right:.1f} %")
    print(model.fit_report_["learning"], model.fit_report_["seconds"], model.n_support_)


if __name__ == "__main__":
    main()
