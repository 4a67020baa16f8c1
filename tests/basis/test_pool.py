"""Candidates: which rows are drawn, kept and given up."""

import pickle

import numpy as np
import pytest

from leansvm.basis import forward, sparse_greedy
from leansvm.basis.candidates import best_of, rounds
from leansvm.basis.candidates.pool import CandidateStream, Pool, Rounding
from leansvm.rows import MemoryBlocks


def make_stream(n=20, allowed=None, seed=0):
    allowed = np.ones(n, dtype=bool) if allowed is None else allowed
    return CandidateStream(np.random.RandomState(seed), allowed)


def make_pool(n=40, size=9):
    blocks = MemoryBlocks(np.arange(n, dtype=float)[:, None])
    return Pool(blocks, size, 5, make_stream(n), Rounding(1.0, 5))


def look_at(pool, D):
    """Tell the pool the residuals of its rows."""
    found = (np.arange(len(pool.rows)), np.empty((len(pool.rows), 0)), np.asarray(D, dtype=float))
    pool.refresh([found], 0)


def test_no_row_twice_before_all_had_their_turn():
    stream = make_stream()
    rounds = []
    for _ in range(4):  # 4 times 5 rows, given back at once
        rounds.append(stream.draw(5))
        stream.give_back(rounds[-1])
    assert sorted(np.concatenate(rounds)) == list(range(20))
    assert len(set(stream.draw(20))) == 20


def test_lent_and_retired_rows_are_not_offered():
    allowed = np.arange(20) != 7
    stream = make_stream(allowed=allowed)
    lent = stream.draw(6)
    stream.retire(lent[:2])
    stream.give_back(lent[:4])
    rest = stream.draw(100)
    assert set(rest) == set(range(20)) - {7} - set(lent[:2]) - set(lent[4:])
    assert len(stream.draw(3)) == 0
    assert not stream.restrict(np.arange(20) == 7)


def test_same_seed_same_rows():
    assert make_stream(seed=3).draw(9).tolist() == make_stream(seed=3).draw(9).tolist()
    assert make_stream(seed=3).draw(9).tolist() != make_stream(seed=4).draw(9).tolist()


def test_best_slot_and_ties():
    pool = make_pool()
    assert pool.best(np.ones(9)) is None
    pool.replace_all()
    look_at(pool, [1, 1, 1e-15, 1, 1, 1, 1, 1, 1])  # the basis contains the third row
    scores = np.zeros(9)
    scores[[2, 5]] = 10.0, 8.0
    assert pool.best(scores) == 5
    assert pool.best(np.full(9, 3.0)) == min(set(range(9)) - {2}, key=lambda j: pool.rows[j])
    close = np.full(9, 3.1) + 1e-12 * np.arange(9)
    assert pool.best(close) == pool.best(np.full(9, 3.1))


def test_the_worst_third_leaves():
    pool = make_pool()
    pool.replace_all()
    look_at(pool, np.ones(len(pool.rows)))
    before, scores = pool.rows.copy(), np.arange(9.0)
    refill = pool.replace_worst([8], scores)
    assert sorted(refill.slots) == [0, 1, 2, 8]
    kept = [3, 4, 5, 6, 7]
    assert pool.rows[kept].tolist() == before[kept].tolist()
    assert pool.rows[refill.slots].tolist() == refill.X[:, 0].tolist() == refill.rows.tolist()
    assert len(set(pool.rows) | set(before)) == 13
    look_at(pool, np.ones(9))
    asked = []

    def draw(count):
        asked.append(count)
        return pool.stream.draw(2)  # fewer than there are slots: only the chosen ones go

    assert pool.replace_worst([4, 6], scores, draw).slots.tolist() == [4, 6]
    assert asked == [5]


def test_few_rows():
    pool = make_pool(n=6, size=6)
    pool.replace_all()
    look_at(pool, np.ones(len(pool.rows)))
    refill = pool.replace_worst([3], np.arange(6.0))
    assert refill.X is None
    assert pool.rows[3] == -1 and np.sum(pool.rows >= 0) == 5
    chosen = int(pool.rows[1])
    redraw = pool.replace_all([1])
    assert redraw.X.shape[0] == 4 and chosen not in pool.rows


@pytest.mark.parametrize("module", [forward, sparse_greedy, best_of, rounds])
def test_block_functions_can_be_sent_to_workers(module):
    names = ("_scores", "_append", "_norms", "_start", "_end", "_missed", "rows_of_basis")
    names += ("_screen", "_look", "move_gradient", "_start_gradient", "_sums_of_targets")
    functions = [getattr(module, name) for name in names if hasattr(module, name)]
    assert functions and all(pickle.loads(pickle.dumps(f)) is f for f in functions)
