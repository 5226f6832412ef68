"""Elimination with arrays on a GPU; NumPy replaces CuPy."""

import types

import numpy as np
import pytest

import minigibbs as mg
from minigibbs.exact import device
from minigibbs.exact.elimination import EliminationTree, exact_answer
from minigibbs.exact.rotation import Rotation
from minigibbs.inference import infer as inference
from tests.exact.test_elimination import narrow_grid
from tests.exact.test_zeros import HARD
from tests.zoo import ZOO

PUT = []


def put(table):
    PUT.append(table.size)
    return np.asarray(table)


POOL = types.SimpleNamespace(free_all_blocks=lambda: None)
RUNTIME = types.SimpleNamespace(memGetInfo=lambda: (2**30, 2**31))
STANDIN = types.SimpleNamespace(
    asarray=put,
    asnumpy=np.asarray,
    where=np.where,
    matmul=np.matmul,
    take=np.take,
    empty=np.empty,
    concatenate=np.concatenate,
    get_default_memory_pool=lambda: POOL,
    cuda=types.SimpleNamespace(runtime=RUNTIME),
)
CARD = device.Card(STANDIN)
MODELS = ZOO | HARD | {"grid": narrow_grid(8, 8)}


@pytest.mark.parametrize("model", MODELS)
def test_answers_are_those_of_the_processor(model):
    PUT.clear()
    graph = MODELS[model]
    flat, log_z = exact_answer(EliminationTree.of(graph, card=CARD))
    want, want_z = exact_answer(EliminationTree.of(graph))
    np.testing.assert_allclose(flat, want, atol=1e-12)
    assert log_z == pytest.approx(want_z)
    assert PUT


def test_numbers_beyond_doubles_go_back_to_the_processor():
    strong = mg.FactorGraph(
        [2] * 6,
        [mg.Ising(range(5), range(1, 6), 2000.0), mg.Unary([0, 5], [[0, 6000.0], [6000.0, 0.3]])],
    )
    flat, _ = exact_answer(EliminationTree.of(strong, card=CARD))
    np.testing.assert_allclose(flat, exact_answer(EliminationTree.of(strong))[0], atol=1e-12)


def test_infer_uses_the_card(monkeypatch):
    monkeypatch.setattr(inference.Card, "found", lambda: CARD)
    PUT.clear()
    answer = mg.infer(MODELS["grid"], backend="cuda", progress=False)
    assert answer.exact
    assert PUT
    np.testing.assert_allclose(answer.marginals, 0.5, atol=1e-12)


def test_the_memory_is_that_of_the_card(monkeypatch):
    monkeypatch.setattr(RUNTIME, "memGetInfo", lambda: (2**10, 2**31))
    wide = mg.models.ising_lattice(16, 0.3, periodic=False)
    with pytest.raises(mg.TooLargeError):
        EliminationTree.of(wide, card=CARD)


def test_an_unknown_backend_is_refused():
    with pytest.raises(mg.SampleError, match="backend must be cpu or cuda"):
        mg.infer(ZOO["potts"], backend="abacus")


def test_large_tables_are_multiplied_and_permuted_in_pieces(monkeypatch):
    """The limits are lowered, so that all kinds of products occur."""
    graph = mg.models.potts_lattice(4, states=3, beta=0.6, periodic=False).condition({3: 1})
    want, want_z = exact_answer(EliminationTree.of(graph))
    for thin, matrices in ((100, 1), (1, 1), (1, 1 << 15), (4, 2)):
        monkeypatch.setattr(device, "_THIN", thin)
        monkeypatch.setattr(device, "_MATRICES", matrices)
        monkeypatch.setattr(device, "_PLACES", 16)
        monkeypatch.setattr(device, "_PARTS", 7)
        flat, log_z = exact_answer(EliminationTree.of(graph, card=CARD))
        np.testing.assert_allclose(flat, want, atol=1e-12)
        assert log_z == pytest.approx(want_z, rel=1e-12)


def test_a_search_for_a_plan_is_shorter_if_a_card_uses_it(monkeypatch):
    paces, usual = [], Rotation.use

    def use(self, pace=1.0):
        paces.append(pace)
        return usual(self, pace)

    monkeypatch.setattr(Rotation, "use", use)
    EliminationTree.of(narrow_grid(9, 9), card=CARD)
    EliminationTree.of(narrow_grid(9, 9))
    assert paces == [1 / device.FASTER, 1.0]
