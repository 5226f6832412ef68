"""PyTorch: exact and sampled moments and gradients, compared with enumeration."""

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg

torch = pytest.importorskip("torch")
from minigibbs.interop.torch_solvers import OnCard, OnHost, unpacked  # noqa: E402
from minigibbs.torch import DenseCRF, Expectations, expectations  # noqa: E402

DOUBLE = {"dtype": torch.float64, "requires_grad": True}


def mixed(size=4):
    """Return a graph of named pairs and fields, a table without a name, and a tied parameter."""
    rng = np.random.default_rng(1)
    i, j = np.triu_indices(size, 1)
    return mg.FactorGraph(
        [3] * size,
        [
            mg.Potts(i, j, rng.normal(0, 0.3, len(i)), name="J"),
            mg.Unary(range(size), rng.normal(0, 0.3, (size, 3)), name="h"),
            mg.Potts(range(size - 1), range(1, size), 0.2, name="chain", tied=0),
            mg.Table([[0, 1]], rng.normal(0, 0.3, (3, 3))),
        ],
    )


def tensors(graph, **shift):
    return {
        name: torch.tensor(np.array(values) + shift.get(name, 0.0), **DOUBLE)
        for name, values in graph.parameters.items()
    }


def test_second_derivatives_are_refused():
    """They used to be 0 silently. The second derivative of log Z is the derivative of the mean."""
    graph = chain(4)
    head = Expectations(graph)
    J = torch.tensor([0.3], dtype=torch.float64)

    def log_z(J):
        return head({"J": J}).log_z

    with pytest.raises(mg.GraphError, match="second derivatives are not available"):
        torch.autograd.functional.hessian(log_z, J)
    curvature = torch.autograd.functional.jacobian(lambda J: head({"J": J}).mean["J"], J)
    step = 1e-4
    ends = log_z(J + step) - 2 * log_z(J) + log_z(J - step)
    assert curvature.item() == pytest.approx(ends.item() / step**2, rel=1e-5)
    unary, features, weights = small_crf()
    crf = DenseCRF(weights, draws=2, warmup=1, seed=1)
    unary = torch.tensor(unary, **DOUBLE)
    gradient = torch.autograd.grad(crf(unary, features)[0, 0], unary, create_graph=True)[0]
    with pytest.raises(mg.GraphError, match="second derivatives are not available"):
        gradient.sum().backward()


def enumerated(graph, parameters):
    """Return the statistics of all states, and their probabilities, at some parameters."""
    values = {name: one.detach().numpy() for name, one in parameters.items()}
    graph = graph.with_parameters(values)
    states = np.stack(np.meshgrid(*map(np.arange, graph.sizes), indexing="ij"), -1)
    states = states.reshape(-1, len(graph))
    energy = graph.log_potential(states)
    distribution = np.exp(energy - energy.max())
    return graph.frame.statistics(states), distribution / distribution.sum()


def flat(graph, named):
    return np.concatenate([named[one.name].detach().numpy().ravel() for one in graph.frame])


def test_moments_are_those_of_enumeration():
    graph = mixed()
    parameters = tensors(graph, h=0.1)
    moments = expectations(graph, parameters)
    rows, distribution = enumerated(graph, parameters)
    assert moments.exact
    np.testing.assert_allclose(flat(graph, moments.mean), distribution @ rows, atol=1e-12)
    moved = graph.with_parameters({k: v.detach().numpy() for k, v in parameters.items()})
    assert moments.log_z.item() == pytest.approx(mg.log_partition(moved))


def chain(length=40):
    """Return a graph of low treewidth with too many states to enumerate."""
    return mg.FactorGraph(
        [2] * length,
        [
            mg.Ising(range(length - 1), range(1, length), 0.3, name="J", tied=0),
            mg.Unary(range(3), [[0.0, 0.1]] * 3, name="h"),
        ],
    )


@pytest.mark.parametrize("graph", [mixed(3), chain()], ids=["enumerated", "eliminated"])
def test_gradcheck(graph):
    head = Expectations(graph, exact=True)
    names = list(graph.parameters)

    def moments(*given):
        found = head(dict(zip(names, given, strict=True)))
        return (*found.mean.values(), found.log_z)

    assert torch.autograd.gradcheck(moments, tuple(tensors(graph).values()))


def test_gradients_are_exact_where_correlations_are_strong():
    """The susceptibility of an open Ising chain is the sum of tanh(J)^|i - j|.

    Its moments change on a scale of 0.01 in the field, so that a step of 1e-4 gives 4 digits.
    """
    size, coupling = 300, 3.0
    i = np.arange(size)
    fields = mg.Unary(i, [[0.0, 0.0]], name="h", tied=[0] * size)
    graph = mg.FactorGraph([2] * size, [mg.Ising(i[:-1], i[1:], coupling), fields])
    h = torch.zeros(1, 2, **DOUBLE)
    moments = expectations(graph, {"h": h}, exact=True)
    (moments.mean["h"][0, 1] - moments.mean["h"][0, 0]).backward()
    wanted = (np.tanh(coupling) ** np.abs(i[:, None] - i)).sum()
    assert (h.grad[0, 1] - h.grad[0, 0]).item() == pytest.approx(wanted, rel=1e-7)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("size", [4, 40], ids=["enumerated", "eliminated"])
def test_gradients_that_are_not_finite_give_nan(size, exact):
    """As in PyTorch, whose optimizers and scalers look for them."""
    for factor in (torch.nan, torch.inf):
        J = torch.tensor([0.3], **DOUBLE)
        options = {"exact": exact, "chains": 4, "draws": 2, "warmup": 1, "threads": 1}
        (expectations(chain(size), {"J": J}, **options).mean["J"].sum() * factor).backward()
        assert J.grad.isnan().all()


def test_a_tensor_without_axes_is_one_number_for_all():
    graph = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.0, name="J")])
    J = torch.tensor(0.3, **DOUBLE)
    moments = expectations(graph, {"J": J})
    moments.log_z.backward()
    assert moments.mean["J"].shape == (2,)
    assert J.grad.item() == pytest.approx(2 * math.tanh(0.3))


def test_gradcheck_of_a_batch():
    graph = mixed(3)
    head = Expectations(graph)
    h = torch.randn(2, 3, 3, **DOUBLE)
    coupling = torch.tensor([0.3], **DOUBLE)

    def moments(h, coupling):
        found = head({"h": h, "chain": coupling})
        return found.mean["h"], found.mean["J"], found.log_z

    assert moments(h, coupling)[0].shape == (2, 3, 3)
    assert torch.autograd.gradcheck(moments, (h, coupling))


def test_sampled_moments_and_gradients_cover_95_percent():
    """Student's 95% intervals with 15 degrees of freedom are checked over 100 seeds.

    The coverage is the share of 100 x 6 numbers. Its threshold of 0.90 is 4 standard errors below
    0.95 if the six numbers of a seed are dependent in pairs: a false alarm in 30,000.
    """
    graph = mg.FactorGraph(
        [2] * 4, [mg.Ising([0, 1, 2, 3, 0, 1], [1, 2, 3, 0, 2, 3], 0.2, name="J")]
    )
    weights = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)
    parameters = tensors(graph)
    rows, distribution = enumerated(graph, parameters)
    mean = distribution @ rows
    centered = rows - mean
    gradient = (centered * distribution[:, None]).T @ centered @ weights.numpy()
    bound = stats.t.ppf(0.975, 15)
    inside, steep = [], []
    for seed in range(100):
        head = Expectations(graph, exact=False, sweeps=3, draws=8, seed=seed, threads=1)
        J = parameters["J"].detach().clone().requires_grad_()
        moments = head({"J": J})
        assert not moments.exact
        assert moments.log_z is None
        (moments.mean["J"] @ weights).backward()
        error = moments.error["J"].numpy()
        inside.append(np.abs(moments.mean["J"].detach().numpy() - mean) < bound * error)
        error = moments.gradient_error["J"].numpy()
        steep.append(np.abs(J.grad.numpy() - gradient) < bound * error)
    assert 0.90 < np.mean(inside) <= 1
    assert 0.90 < np.mean(steep) <= 1


def test_errors_of_shared_parameters_are_those_of_the_sum_over_a_batch():
    """Student's 95% intervals with 15 degrees of freedom, over 60 seeds of 6 couplings.

    The threshold of 0.88 is 4 standard errors below 0.95 if the couplings of a seed are dependent
    in pairs: a false alarm in 30,000. The errors of a single model would cover 70%.
    """
    i, j = np.triu_indices(4, 1)
    pairs = mg.Ising(i, j, 0.2, name="J")
    graph = mg.FactorGraph([2] * 4, [pairs, mg.Unary(range(4), [[0.0, 0.0]] * 4, name="h")])
    fields = torch.linspace(-0.5, 0.5, 32, dtype=torch.float64).reshape(4, 4, 2)
    weights = torch.linspace(-1.0, 1.0, 8, dtype=torch.float64).reshape(4, 2)

    def gradient(**options):
        J = torch.full((6,), 0.2, **DOUBLE)
        moments = expectations(graph, {"J": J, "h": fields}, threads=1, **options)
        (moments.mean["h"] * weights).sum().backward()
        assert moments.gradient_error["J"].shape == J.shape
        assert moments.gradient_error["h"].shape == fields.shape
        return J.grad, moments.gradient_error["J"]

    wanted, none = gradient(exact=True)
    assert not none.any()
    inside, bound = [], stats.t.ppf(0.975, 15)
    for seed in range(60):
        found, error = gradient(exact=False, sweeps=3, draws=8, seed=10 * seed)
        inside.append((found - wanted).abs() < bound * error)
    assert torch.stack(inside).double().mean() > 0.88


def packed(states, sizes):
    """Return bits [word of 32 chains, value], as a GPU stores them."""
    hot = np.concatenate(
        [states[:, [i]] == np.arange(size) for i, size in enumerate(sizes)], axis=1
    )
    words = np.zeros((-(-len(states) // 32), hot.shape[1]), np.uint32)
    for chain, row in enumerate(hot):
        words[chain // 32] |= row.astype(np.uint32) << np.uint32(chain % 32)
    return words.view(np.int32)


def test_statistics_by_tensors_are_those_of_compiled_code():
    """The GPU's computation on the CPU: bits of 70 chains, at two draws, in two groups."""
    graph = mixed()
    frame, rng = graph.frame, np.random.default_rng(2)
    assert frame.countable
    host, card = OnHost(frame), OnCard(frame, torch.device("cpu"))
    drawn = [rng.integers(0, 3, (70, 4)).astype(graph.state_type) for _ in range(2)]
    marks = [unpacked(torch.from_numpy(packed(one, graph.sizes)), 70) for one in drawn]
    vector = torch.tensor(rng.normal(size=frame.size))
    weight = torch.tensor(rng.normal(size=70))
    pairs = zip(host.grouped(drawn, 2), card.grouped(marks, 2), strict=True)
    for here, there in pairs:
        torch.testing.assert_close(host.along(here, vector), card.along(there, vector))
        torch.testing.assert_close(host.summed(here, weight), card.summed(there, weight))


def test_chains_persist_between_calls():
    """A frozen model keeps the state of its chains; new chains would start in both states."""
    graph = mg.FactorGraph([2] * 2, [mg.Ising([0], [1], 9.0), mg.Unary([0], [0.0, 0.0], name="h")])
    head = Expectations(graph, exact=False, chains=16, sweeps=1, draws=1, warmup=50, seed=3)
    with torch.no_grad():
        head({"h": torch.tensor([0.0, 30.0])})
        second = head({"h": torch.zeros(2)}).mean["h"]
    assert second[1] > 0.99


def test_chains_leave_states_that_become_impossible():
    """The table first allows 000 only, and then states with two ones, two changes away."""
    graph = mg.FactorGraph([2] * 3, [mg.Table([[0, 1, 2]], np.zeros((1, 2, 2, 2)), name="T")])
    ones = np.indices((2, 2, 2)).sum(axis=0)[None]
    head = Expectations(graph, exact=False, chains=64, draws=2, warmup=5, seed=1, threads=1)
    for allowed in (0, 2):
        table = torch.tensor(np.where(ones == allowed, 0.0, -np.inf))
        mean = head({"T": table}).mean["T"].numpy()
        assert not mean[ones != allowed].any()
        assert mean.sum() == pytest.approx(1.0)
    with pytest.raises(mg.GraphError, match="no state of this graph has positive probability"):
        head({"T": torch.full((1, 2, 2, 2), -torch.inf)})


def test_threads_may_share_the_chains():
    """Fields determine all values, so a call that sweeps at another call's fields is found."""
    graph = mg.FactorGraph([2] * 50, [mg.Unary(range(50), [[0.0, 0.0]] * 50, name="h")])
    head = Expectations(graph, exact=False, sweeps=200, draws=2, seed=1, threads=1)

    def mean(value):
        h = torch.zeros(50, 2)
        h[:, value] = 60.0
        return head({"h": h}).mean["h"][:, value].min()

    with ThreadPoolExecutor(2) as pool:
        assert all(one == 1 for one in pool.map(mean, [0, 1] * 40))


@pytest.mark.parametrize("exact", [True, False])
def test_entries_of_minus_infinity_forbid_values(exact):
    """One entry in the graph becomes finite, one in the tensor is new; sampled within 6 errors."""
    graph = mixed(3).with_parameters({"h": [[0.0, -np.inf, 0.3], [0.0, 0.1, 0.2], [0.5, 0.0, 0.0]]})
    h = torch.tensor([[-torch.inf, 0.4, 0.3], [0.0, 0.1, 0.2], [0.5, 0.0, 0.0]], **DOUBLE)
    options = {"exact": exact, "draws": 64, "seed": 1, "threads": 1}
    moments = expectations(graph, {"h": h}, **options)
    moved = graph.with_parameters({"h": h.detach().numpy()})
    answer = mg.infer(moved, progress=False)
    error = 6 * moments.error["h"].numpy() + 1e-9
    for v in range(3):
        found = moments.mean["h"][v].detach().numpy()
        assert (np.abs(found - answer.marginal(v).probability) <= error[v]).all()
    assert moments.mean["h"][0, 0] == 0
    moments.mean["h"][1].square().sum().backward()
    assert torch.isfinite(h.grad).all()
    assert h.grad[0, 0] == 0


def test_copies_and_pickles_hold_the_settings():
    head = Expectations(chain(4), exact=False, chains=8, draws=2, warmup=5, seed=3)
    given = {"J": torch.tensor([0.3])}
    first = head(given).mean["J"]
    for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        torch.testing.assert_close(other(given).mean["J"], first)  # the chains start anew


def test_tensors_of_several_types_give_the_wider_one():
    given = {"J": torch.tensor([0.3]), "h": torch.zeros(3, 2, dtype=torch.float64)}
    assert expectations(chain(4), given).mean["J"].dtype is torch.float64


def test_tensors_keep_their_type_and_shared_parameters_sum_over_a_batch():
    graph = chain(8)
    J = torch.tensor([0.3], requires_grad=True)
    h = torch.zeros(3, 3, 2, requires_grad=True)
    moments = Expectations(graph)({"J": J, "h": h})
    assert moments.mean["J"].dtype is torch.float32
    assert moments.mean["J"].shape == (3, 1)
    moments.mean["J"].sum().backward()
    alone = torch.tensor([0.3], requires_grad=True)
    expectations(graph, {"J": alone, "h": torch.zeros(3, 2)}).mean["J"].sum().backward()
    torch.testing.assert_close(J.grad, 3 * alone.grad)


def test_maximum_likelihood_by_an_optimizer():
    """Gradient ascent of the exact likelihood converges to the result of `mg.learn`."""
    graph = chain(6)
    true = graph.with_parameters({"J": [0.8]})
    rows = mg.exact_draws(true, 200, seed=1)
    wanted = mg.learn(graph, rows, method="exact", progress=False).parameters["J"]
    head = Expectations(graph)
    data = {name: torch.tensor(one.mean(axis=0)) for name, one in graph.statistics(rows).items()}
    parameters = tensors(graph)
    optimizer = torch.optim.LBFGS(parameters.values(), max_iter=60, tolerance_change=1e-14)

    def loss():
        optimizer.zero_grad()
        found = head(parameters)
        value = found.log_z - sum((parameters[k] * data[k]).sum() for k in parameters)
        value.backward()
        return value

    optimizer.step(loss)
    np.testing.assert_allclose(parameters["J"].detach().numpy(), wanted, atol=1e-4)


GRAPH = chain(4)
BAD = {
    "unknown": (lambda: expectations(GRAPH, {"K": torch.zeros(1)}), "unknown parameter 'K'"),
    "array": (lambda: expectations(GRAPH, {"J": np.zeros(1)}), "'J' must be a tensor, got ndarray"),
    "shape": (lambda: expectations(GRAPH, {"J": torch.zeros(2)}), r"'J' must have shape \(1,\)"),
    "NaN": (lambda: expectations(GRAPH, {"J": torch.tensor([torch.nan])}), r"'J'\[0\] must be fin"),
    "-inf": (lambda: expectations(GRAPH, {"J": torch.tensor([-torch.inf])}), r"finite; got -inf"),
    "large": (
        lambda: expectations(GRAPH, {"J": torch.tensor([1e200], dtype=torch.float64)}),
        r"'J'\[0\] must be finite, at most 1e\+100 in size; got 1e\+200",
    ),
    "integers": (lambda: expectations(GRAPH, {"J": torch.tensor([1])}), "floating.* torch.int64"),
    "impossible": (
        lambda: expectations(GRAPH, {"h": torch.full((3, 2), -torch.inf)}),
        "every state has probability 0",
    ),
    "devices": (
        lambda: expectations(GRAPH, {"J": torch.zeros(1), "h": torch.zeros(3, 2, device="meta")}),
        "one device, got cpu, meta",
    ),
    "batches": (
        lambda: expectations(GRAPH, {"J": torch.zeros(2, 1), "h": torch.zeros(3, 3, 2)}),
        r"one batch size, got \[2, 3\]",
    ),
    "no parameters": (
        lambda: Expectations(mg.models.ising_lattice(3, 0.2)),
        "the graph has no parameters",
    ),
    "implicit": (lambda: Expectations(mg.FactorGraph([2] * 6, [mg.Complete(6, 0.2)])), "implicit"),
    "draws": (lambda: Expectations(GRAPH, draws=0), "draws must be"),
    "no mapping": (lambda: Expectations(GRAPH)([torch.zeros(1)]), "tensors by name, got list"),
    "sparse": (lambda: Expectations(GRAPH)({"J": torch.zeros(1).to_sparse()}), "dense tensor"),
    "meta": (lambda: Expectations(GRAPH)({"J": torch.zeros(1, device="meta")}), "with numbers"),
    "vmap": (
        lambda: torch.vmap(lambda J: Expectations(GRAPH)({"J": J}).log_z)(torch.zeros(5, 1)),
        "use a leading batch axis",
    ),
}


@pytest.mark.parametrize("exact", [True, False])
def test_a_batch_of_no_models(exact):
    """As in layers of PyTorch: tensors of length 0, and a gradient of 0 for what is shared."""
    h = torch.zeros(0, 3, 2, requires_grad=True)
    J = torch.zeros(1, requires_grad=True)
    moments = Expectations(chain(4), exact=exact)({"h": h, "J": J})
    assert moments.mean["h"].shape == moments.error["h"].shape == h.shape
    assert moments.mean["J"].shape == (0, 1)
    assert (moments.log_z.shape == (0,)) if exact else (moments.log_z is None)
    sum(each.sum() for each in moments.mean.values()).backward()
    assert h.grad.shape == h.shape
    assert J.grad.tolist() == [0.0]


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises(mg.MinigibbsError, match=message):
        call()


# Dense conditional random fields


def small_crf():
    rng = np.random.default_rng(4)
    features = [rng.normal(size=(5, 2)), rng.normal(size=(5, 1))]
    return rng.normal(0, 0.5, (5, 3)), features, [0.6, -0.4]


def exact_crf(unary, features, weights, vector):
    """Return marginals, and the gradients of their product with a vector, by enumeration."""
    points, labels = unary.shape
    groups = [mg.Points(f, weight=1.0, norms="sums") for f in features]
    states = np.stack(np.meshgrid(*[np.arange(labels)] * points, indexing="ij"), -1)
    states = states.reshape(-1, points)
    hot = (states[..., None] == np.arange(labels)).reshape(len(states), -1).astype(float)
    pairs = np.stack([group.energies(states) for group in groups], axis=1)
    energy = hot @ unary.ravel() + pairs @ np.array(weights)
    distribution = np.exp(energy - energy.max())
    distribution /= distribution.sum()
    rows = np.hstack([hot, pairs])
    centered = rows - distribution @ rows
    along = hot @ vector.ravel()
    gradient = (centered * distribution[:, None]).T @ (along - distribution @ along)
    return (distribution @ hot).reshape(points, labels), gradient


def test_dense_crf_covers_enumeration():
    """Student's 95% intervals of 15 degrees of freedom, over 25 calls of 15 + 17 numbers.

    With a threshold of 90% for each share, the false-alarm rate is below 1 in 1,000 even if only 5
    numbers of a call were independent. The seed is fixed.
    """
    unary, features, weights = small_crf()
    vector = np.linspace(-1, 1, 15).reshape(5, 3)
    marginals, gradient = exact_crf(unary, features, weights, vector)
    crf = DenseCRF(weights, seed=5)
    bound, inside, steep = stats.t.ppf(0.975, 15), [], []
    for _ in range(25):
        crf.zero_grad()
        fields = torch.tensor(unary, **DOUBLE)
        found = crf(fields, features)
        (found * torch.tensor(vector)).sum().backward()
        inside.append(np.abs(found.detach().numpy() - marginals) < bound * crf.error.numpy())
        given = np.append(fields.grad.numpy(), crf.weight.grad.numpy())
        error = np.append(*(one.numpy() for one in crf.gradient_error))
        steep.append(np.abs(given - gradient) < bound * error)
    assert 0.90 < np.mean(inside) <= 1
    assert 0.90 < np.mean(steep) <= 1


def test_gradients_of_fixed_weights_are_left_out(monkeypatch):
    """With wide kernels, evaluating them takes time quadratic in the number of points."""

    def refuse(*_):
        raise AssertionError("kernels were evaluated")

    unary, features, weights = small_crf()
    gradients = []
    for learned in (True, False):
        crf = DenseCRF(weights, draws=4, seed=5)
        crf.weight.requires_grad_(learned)
        fields = torch.tensor(unary, **DOUBLE)
        (crf(fields, features)[:, 0] ** 2).sum().backward()
        gradients.append(fields.grad)
        monkeypatch.setattr(mg.Points, "energies", refuse)
    torch.testing.assert_close(*gradients)
    assert crf.weight.grad is None


def test_a_dense_crf_without_kernels():
    fields = torch.zeros(5, 3, **DOUBLE)
    crf = DenseCRF([], draws=4, seed=5)
    crf(fields, [])[:, 0].sum().backward()
    assert fields.grad[:, 0].min() > 0
    assert crf.weight.grad.shape == (0,)


def test_a_batch_of_images():
    """Images have their own features: the gradient of the weights is the sum over images."""
    unary, features, weights = small_crf()
    crf = DenseCRF(weights, seed=5)
    fields = torch.tensor(np.stack([unary, -unary]), **DOUBLE)
    own = [np.stack([one, one + 1.0]) for one in features]
    vector = np.linspace(-1, 1, 15).reshape(5, 3)
    (crf(fields, own) * torch.tensor(vector)).sum().backward()
    alike = (
        exact_crf(unary, features, weights, vector),
        exact_crf(-unary, features, weights, vector),
    )
    assert crf.error.shape == crf.gradient_error[0].shape == (2, 5, 3)
    wanted = sum(gradient[15:] for _, gradient in alike)
    error = crf.gradient_error[1].numpy()
    assert (np.abs(crf.weight.grad.numpy() - wanted) < 6 * error).all()  # t: 1 in 40,000 each
    for k, (marginals, _) in enumerate(alike):
        found = crf(fields[k], features).detach().numpy()
        assert (np.abs(found - marginals) < 6 * crf.error.numpy() + 1e-9).all()


CRF_BAD = {
    "unary": (lambda: DenseCRF([1.0])(torch.zeros(3), [np.zeros((3, 1))]), "unary must be"),
    "integers": (
        lambda: DenseCRF([1.0])(torch.zeros(3, 2, dtype=torch.int64), [np.zeros((3, 1))]),
        "floating-point type, got torch.int64",
    ),
    "kernels": (lambda: DenseCRF([1.0, 2.0])(torch.zeros(3, 2), [np.zeros((3, 1))]), "2 kernels"),
    "points": (lambda: DenseCRF([1.0])(torch.zeros(3, 2), [np.zeros((4, 1))]), "kernel 0 must"),
    "draws": (lambda: DenseCRF([1.0], draws=0), "draws must be"),
    "kernel": (lambda: DenseCRF([1.0], kernel="gauss"), "kernel must be .* got 'gauss'"),
    "no points": (lambda: DenseCRF([1.0])(torch.zeros(0, 2), [[]]), r"shape \(0, 2\)"),
    "text": (lambda: DenseCRF([1.0])(torch.zeros(3, 2), ["a"]), "kernel 0 must hold real numbers"),
    "learned features": (
        lambda: DenseCRF([1.0])(torch.zeros(3, 2), [torch.zeros(3, 1, requires_grad=True)]),
        r"use features.detach\(\)",
    ),
}


def test_a_batch_of_no_images():
    unary = torch.zeros(0, 3, 2, requires_grad=True)
    crf = DenseCRF([1.0])
    marginals = crf(unary, [np.zeros((3, 1))])
    assert marginals.shape == crf.error.shape == (0, 3, 2)
    marginals.sum().backward()
    assert unary.grad.shape == unary.shape


def test_features_of_any_number_type():
    places = torch.arange(3.0).reshape(3, 1)
    wanted, *found = (
        DenseCRF([1.0], seed=1)(torch.zeros(3, 2), [given])
        for given in (places, places.bfloat16(), places.int(), places.tolist())
    )
    assert all(torch.equal(one, wanted) for one in found)


@pytest.mark.parametrize("case", CRF_BAD)
def test_bad_input_of_a_crf(case):
    call, message = CRF_BAD[case]
    with pytest.raises(mg.GraphError, match=message):
        call()
