"""Prepared results: computed once, by one thread while others wait, and freed with the graph."""

import copy
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.graph.prepared import STORE, forget, prepared
from tests.zoo import ZOO

THREADS = 8


def fresh():
    return mg.models.ising_lattice(side=4, beta=0.2)


def together(work):
    """Call work(number) on several threads that start at the same time."""
    barrier = Barrier(THREADS)

    def one(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def test_one_thread_computes_and_the_others_wait():
    for _ in range(20):
        graph, made = fresh(), []

        def make(made=made):
            made.append(1)
            return object()

        found = together(lambda _, graph=graph, make=make: prepared(graph, "a", 1, make))
        assert len(made) == 1
        assert len(set(map(id, found))) == 1


def test_kinds_and_keys_are_apart():
    graph = fresh()
    assert prepared(graph, "a", 1, lambda: "a1") == "a1"
    assert prepared(graph, "b", 1, lambda: "b1") == "b1"
    assert prepared(graph, "a", 2, lambda: "a2") == "a2"
    assert prepared(graph, "a", 1, lambda: "other") == "a1"
    assert prepared(fresh(), "a", 1, lambda: "other") == "other"
    forget(graph, "a")
    assert prepared(graph, "a", 1, lambda: "again") == "again"
    assert prepared(graph, "b", 1, lambda: "other") == "b1"


def test_the_oldest_entry_is_dropped():
    graph, made = fresh(), []
    for key in (1, 2, 3, 1, 3):
        prepared(graph, "a", key, lambda key=key: made.append(key), most=2)
    assert made == [1, 2, 3, 1]


def test_what_cannot_be_computed_or_hashed_is_not_kept():
    graph = fresh()

    def fail():
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        prepared(graph, "a", 1, fail)
    assert prepared(graph, "a", 1, lambda: 5) == 5
    assert prepared(graph, "a", [1], lambda: 6) == 6
    assert prepared(graph, "a", [1], lambda: 7) == 7


def test_an_entry_may_ask_for_another():
    graph = fresh()

    def outer():
        return prepared(graph, "inner", 1, lambda: 2) + 1

    assert together(lambda _: prepared(graph, "outer", 1, outer)) == [3] * THREADS


def test_entries_do_not_travel_and_are_freed_with_the_graph():
    graph = fresh()
    kept = prepared(graph, "a", 1, lambda: np.arange(3))
    for other in (pickle.loads(pickle.dumps(graph)), copy.copy(graph), copy.deepcopy(graph)):
        assert STORE not in vars(other)
    seen = weakref.ref(kept)
    del kept, graph, other
    gc.collect()
    assert seen() is None


def test_threads_that_sample_one_graph_have_the_same_draws():
    """Every thread has its own sampler, so that splits are freed while others are computed."""
    options = {"updates": 50, "chains": 1, "seed": 1, "record": "draws", "progress": False}
    samplers = [mg.PoissonGibbs(theta=0.5 + 0.25 * number, heavy=1) for number in range(THREADS)]
    alone = [mg.sample(ZOO["potts"], one, **options).draws for one in samplers]
    for _ in range(5):
        graph = pickle.loads(pickle.dumps(ZOO["potts"]))
        found = together(lambda k, graph=graph: mg.sample(graph, samplers[k], **options).draws)
        for one, other in zip(found, alone, strict=True):
            np.testing.assert_array_equal(one, other)


def test_threads_that_split_one_graph_compute_a_split_once(monkeypatch):
    made, split = [], mg.PoissonGibbs._split

    def counting(self, graph, lanes):
        made.append(str(self))
        return split(self, graph, lanes)

    monkeypatch.setattr(mg.PoissonGibbs, "_split", counting)
    for _ in range(10):
        made.clear()
        graph = mg.models.potts_rbf(side=4)
        found = together(lambda _, graph=graph: mg.PoissonGibbs().split(graph))
        assert len(made) == 1
        assert all(one is found[0] for one in found)
