"""State on disk is the state in memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from leansvm.rows._spill import StateStore


@dataclass
class First:
    P: Any


@dataclass
class Second:
    P: Any


@dataclass
class Third:
    P: Any


def of(value):
    return {First: First(value)}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 60_000), st.integers(0, 2**16))
def test_arrays_come_back_whatever_the_budget(budget, seed):
    rng = np.random.default_rng(seed)
    store = StateStore(budget)
    kept = {key: {} for key in range(3)}
    for _ in range(12):
        key = int(rng.integers(3))
        state = store.load(key)
        assert state.keys() == kept[key].keys()
        name = [First, Second, Third][int(rng.integers(3))]
        action = rng.integers(4)
        if action == 0:
            state.pop(name, None)
            kept[key].pop(name, None)
        elif action == 1 and name in state:  # in place
            state[name].P += 1.0
            kept[key][name] = kept[key][name] + 1.0
        else:
            order = rng.choice(["C", "F"])
            shape = (int(rng.integers(0, 60)), int(rng.integers(1, 30)))
            value = np.asarray(rng.normal(size=shape), order=order)
            state[name], kept[key][name] = name(value), value.copy()
        store.store(key, state)
        del state
        assert store.in_memory <= budget
        for k, expected in kept.items():
            found = store.load(k)
            assert found.keys() == expected.keys()
            for n in expected:
                assert_array_equal(found[n].P, expected[n])


def test_order_of_memory_and_files_end_with_the_store():
    store = StateStore(0)
    store.store(0, of(np.asfortranarray(np.arange(10_000.0).reshape(100, 100))))
    assert store.load(0)[First].P.flags.f_contiguous
    (folder,) = [store._folder.name]
    del store
    import os

    assert not os.path.exists(folder)


def test_bytes_set_aside_are_not_for_states():
    store = StateStore(100_000)
    store.store(0, of(np.zeros(5_000)))
    assert not store.reserve(60_001)
    assert store.reserve(60_000)
    store.store(1, of(np.zeros(1_000)))
    assert store.in_memory == 40_000 and store.on_disk == 8_000
    assert_array_equal(store.load(1)[First].P, np.zeros(1_000))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_full_folder_is_named(monkeypatch):
    store = StateStore(0)
    monkeypatch.setattr(store, "_path", lambda key, name: Path("/dev/full"))
    with pytest.raises(OSError, match=r"/dev/full: 80,000 bytes of the fit's state.*TMPDIR"):
        store.store(0, of(np.zeros(10_000)))
