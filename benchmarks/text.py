"""Texts as TF-IDF rows: a default fit beside logistic regression.

Half of the documents of a seeded generator are fitted, the other half are scored.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

from ._harness import Options, Report

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


def run(options: Options) -> Report:
    """Fit both on the same documents, and judge seconds and accuracy."""
    from sklearn.linear_model import LogisticRegression

    from leansvm import SparseLSSVC

    n = options.pick(3000, 300)
    X, y = documents(2 * n)
    report = Report("text", f"{n:,} documents x {X.shape[1]:,} words", options)
    accuracy, seconds = {}, {}
    for model in (LogisticRegression(max_iter=1000), SparseLSSVC(random_state=0)):
        name = type(model).__name__
        start = time.perf_counter()
        model.fit(X[:n], y[:n])
        seconds[name] = time.perf_counter() - start
        accuracy[name] = 100 * model.score(X[n:], y[n:])
        report.rows.append(
            {"model": name, "fit [s]": round(seconds[name], 2), "accuracy [%]": accuracy[name]}
        )
    report.notes.append(f"{X.nnz / X.shape[0]:.0f} words a row; {model.fit_report_['learning']}")
    report.at_most("seconds of a fit", seconds["SparseLSSVC"], 8.0)
    lead = accuracy["SparseLSSVC"] - accuracy["LogisticRegression"]
    report.at_least("accuracy less that of logistic regression [points]", lead, -0.5)
    return report
