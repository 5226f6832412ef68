"""Coupling matrices: energies by definition, every sparse format, and rejected matrices."""

import itertools

import numpy as np
import pytest
from scipy import sparse

import minigibbs as mg

N = 5


def symmetric(seed=1):
    J = np.random.default_rng(seed).normal(size=(N, N))
    J[0, 3] = J[3, 0] = 0.0
    J = (J + J.T) / 2
    np.fill_diagonal(J, 0.0)
    return J


def field(*shape):
    return np.random.default_rng(2).normal(size=shape)


def ising_energy(J, h, x):
    s = [2 * value - 1 for value in x]
    pairs = sum(J[i, j] * s[i] * s[j] for i, j in itertools.combinations(range(N), 2))
    return pairs + sum(h[i] * s[i] for i in range(N))


def potts_energy(J, h, x):
    pairs = sum(J[i, j] * (x[i] == x[j]) for i, j in itertools.combinations(range(N), 2))
    return pairs + sum(h[i][x[i]] for i in range(N))


def states(size):
    return np.array(list(itertools.product(range(size), repeat=N)))


def test_energies_of_ising():
    J, h = symmetric(), field(N)
    graph = mg.ising_from_matrix(J, h, beta=0.7)
    expected = [0.7 * ising_energy(J, h, x) for x in states(2)]
    np.testing.assert_allclose(graph.log_potential(states(2)), expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(3,), (N, 3)])
def test_energies_of_potts(shape):
    J, h = symmetric(), field(*shape)
    graph = mg.potts_from_matrix(J, 3, h, beta=0.7)
    rows = np.broadcast_to(h, (N, 3))
    expected = [0.7 * potts_energy(J, rows, x) for x in states(3)]
    np.testing.assert_allclose(graph.log_potential(states(3)), expected, atol=1e-12)


def test_triangles_count_each_pair_once():
    J = symmetric()
    whole = mg.ising_from_matrix(J).log_potential(states(2))
    for half in (np.triu(J), np.tril(J), np.triu(J).tolist()):
        np.testing.assert_allclose(mg.ising_from_matrix(half).log_potential(states(2)), whole)


FORMATS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("form", FORMATS)
def test_sparse_formats_are_never_made_dense(form, kind, monkeypatch):
    J = symmetric()
    expected = mg.ising_from_matrix(J).log_potential(states(2))
    given = getattr(sparse, f"{form}_{kind}")(J)

    def refuse(*_, **__):
        raise AssertionError("made dense")

    for name in FORMATS:
        for ending in ("matrix", "array"):
            monkeypatch.setattr(getattr(sparse, f"{name}_{ending}"), "toarray", refuse)
            monkeypatch.setattr(getattr(sparse, f"{name}_{ending}"), "todense", refuse)
    np.testing.assert_allclose(mg.ising_from_matrix(given).log_potential(states(2)), expected)


def test_repeated_entries_add_up_and_stored_zeros_are_nothing():
    i, j, weight = [0, 1, 0, 2], [1, 0, 1, 2], [1.0, 1.5, 0.5, 0.0]
    given = sparse.coo_matrix((weight, (i, j)), shape=(3, 3))
    graph = mg.ising_from_matrix(given)
    assert graph.stats.factors == 1
    assert graph.log_potential([1, 1, 0]) == 1.5
    assert given.nnz == 4  # the argument is not modified
    assert given.data.tolist() == weight


def test_a_large_sparse_matrix():
    """A dense copy would take 80 GB."""
    n = 100_000
    chain = sparse.diags_array(np.full(n - 1, 0.5), offsets=1, shape=(n, n))
    graph = mg.ising_from_matrix(chain + chain.T)
    assert graph.stats.factors == n - 1
    assert graph.log_potential(np.zeros(n, dtype=int)) == pytest.approx(0.5 * (n - 1))


def test_rounding_does_not_make_a_matrix_asymmetric():
    J = symmetric()
    J[1, 2] *= 1 + 1e-15
    mg.ising_from_matrix(J)


def test_no_couplings():
    graph = mg.ising_from_matrix(np.zeros((2, 2)), h=[0.5, 0.0])
    assert graph.log_potential([1, 0]) == 0.5
    np.testing.assert_allclose(mg.exact_marginals(graph)[:, 1], [1 / (1 + np.exp(-1.0)), 0.5])
    assert mg.potts_from_matrix([[0.0]], 3).log_potential([2]) == 0.0


def test_integers_and_booleans():
    assert mg.ising_from_matrix([[0, 2], [2, 0]]).log_potential([1, 1]) == 2.0
    assert (
        mg.potts_from_matrix(np.array([[False, True], [True, False]]), 2).log_potential([1, 1])
        == 1.0
    )


def test_names():
    graph = mg.ising_from_matrix([[0, 2], [2, 0]], names=["a", "b"])
    assert graph.names == ("a", "b")


def entry(i, j, value, base=None):
    J = symmetric() if base is None else base
    J[i, j] = value
    return J


BAD = {
    "asymmetric": (
        lambda: mg.ising_from_matrix(entry(1, 4, 9.0)),
        ["J[1, 4] = 9.0", "J[4, 1]", "triangular"],
    ),
    "asymmetric and sparse": (
        lambda: mg.potts_from_matrix(sparse.csr_array(entry(4, 1, 9.0)), 3),
        ["J[4, 1] = 9.0", "symmetric"],
    ),
    "diagonal": (
        lambda: mg.ising_from_matrix(entry(2, 2, 1.0)),
        ["J[2, 2] = 1.0", "diagonal", "constant"],
    ),
    "NaN": (lambda: mg.ising_from_matrix(entry(1, 2, np.nan)), ["J[1, 2] = nan", "finite"]),
    "infinity, sparse": (
        lambda: mg.ising_from_matrix(sparse.csr_array(entry(1, 2, np.inf))),
        ["J[1, 2] = inf", "finite"],
    ),
    "not square": (lambda: mg.ising_from_matrix(np.zeros((2, 3))), ["square", "(2, 3)"]),
    "no matrix": (lambda: mg.ising_from_matrix(np.zeros(3)), ["square", "(3,)"]),
    "sparse vector": (
        lambda: mg.ising_from_matrix(sparse.coo_array(np.ones(3))),
        ["square", "(3,)"],
    ),
    "no variables": (lambda: mg.ising_from_matrix(np.zeros((0, 0))), ["at least one variable"]),
    "complex": (lambda: mg.ising_from_matrix(1j * symmetric()), ["real", "complex128"]),
    "complex and sparse": (
        lambda: mg.ising_from_matrix(sparse.csr_array(1j * symmetric())),
        ["complex128"],
    ),
    "text": (lambda: mg.ising_from_matrix([["a"]]), ["real numbers"]),
    "fields too few": (
        lambda: mg.ising_from_matrix(symmetric(), h=[1.0]),
        ["h must", "(5)", "(1,)"],
    ),
    "NaN field": (
        lambda: mg.ising_from_matrix(symmetric(), h=[0, 0, np.nan, 0, 0]),
        ["h:", "nan at [2]"],
    ),
    "Potts fields of another shape": (
        lambda: mg.potts_from_matrix(symmetric(), 3, h=np.zeros((3, N))),
        ["h must", "(3, 5)"],
    ),
    "infinite Potts field": (
        lambda: mg.potts_from_matrix(symmetric(), 2, h=[0, -np.inf]),
        ["h:", "-inf at [1]"],
    ),
    "no states": (lambda: mg.potts_from_matrix(symmetric(), 0), ["states", "got 0"]),
    "states as a fraction": (lambda: mg.potts_from_matrix(symmetric(), 2.0), ["states", "2.0"]),
    "NaN beta": (lambda: mg.ising_from_matrix(symmetric(), beta=np.nan), ["beta", "nan"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_matrices(case):
    make, pieces = BAD[case]
    with pytest.raises(mg.GraphError) as caught:
        make()
    missing = [piece for piece in pieces if piece not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


def test_too_large_for_memory(monkeypatch):
    monkeypatch.setattr("minigibbs.system.memory.available", lambda: 1000)
    monkeypatch.setattr("minigibbs.system.memory.HARMLESS", 0)
    with pytest.raises(mg.TooLargeError, match="18 couplings"):
        mg.ising_from_matrix(symmetric())
