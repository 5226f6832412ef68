"""PyTorch on a GPU: chains and statistics stay there; moments and gradients match enumeration."""

import numpy as np
import pytest
from scipy import stats

import minigibbs as mg

torch = pytest.importorskip("torch")
from minigibbs.interop.torch_solvers import Sampled  # noqa: E402
from minigibbs.torch import DenseCRF, Expectations  # noqa: E402
from tests.interop.test_torch import enumerated, exact_crf, mixed, small_crf  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU for torch")


def spins():
    i, j = np.triu_indices(4, 1)
    return mg.FactorGraph(
        [2] * 4, [mg.Ising(i, j, 0.2, name="J"), mg.Unary([0, 2], [[0.0, 0.3]] * 2, name="h")]
    )


@pytest.mark.parametrize("graph", [spins(), mixed()], ids=["spins", "three values"])
def test_moments_and_gradients_cover_enumeration(graph):
    """Student's 95% intervals are computed for 40 seeds, of at least 10 numbers each.

    A share of 0.90 is 3 standard errors below 0.95 if 5 numbers of a seed are independent: a
    false alarm in 700.
    """
    device = torch.device("cuda")
    assert Sampled.place(graph, device) == device
    here = {name: torch.tensor(np.array(one)) for name, one in graph.parameters.items()}
    rows, distribution = enumerated(graph, here)
    mean, vector = distribution @ rows, np.linspace(-1, 1, rows.shape[1])
    gradient = ((rows - mean) * distribution[:, None]).T @ ((rows - mean) @ vector)
    inside, steep, bound = [], [], stats.t.ppf(0.975, 15)

    def flat(named):
        return torch.cat([named[one.name].detach().ravel() for one in graph.frame])

    for seed in range(40):
        head = Expectations(graph, exact=False, sweeps=3, draws=8, seed=seed)
        given = {name: one.to(device).requires_grad_() for name, one in here.items()}
        moments = head(given)
        found = torch.cat([moments.mean[one.name].ravel() for one in graph.frame])
        assert found.is_cuda
        (found @ torch.tensor(vector, device=device)).backward()
        close = np.abs(found.detach().cpu().numpy() - mean)
        inside.append(close <= bound * flat(moments.error).cpu().numpy())
        grads = flat({name: one.grad for name, one in given.items()}).cpu().numpy()
        steep.append(np.abs(grads - gradient) <= bound * flat(moments.gradient_error).cpu().numpy())
    assert np.mean(inside) > 0.90
    assert np.mean(steep) > 0.90


def test_states_stay_on_the_device(monkeypatch):
    """Only parameters are copied: the host never reads states."""
    from minigibbs.learning.device import DeviceChains

    def refuse(self):
        raise AssertionError("states were copied to the host")

    monkeypatch.setattr(DeviceChains, "states", refuse)
    graph = spins()
    head = Expectations(graph, exact=False, seed=1)
    h = torch.zeros(3, 2, 2, device="cuda", requires_grad=True)
    moments = head({"h": h})
    moments.mean["J"].sum().backward()
    assert moments.mean["J"].shape == (3, 6)
    assert h.grad.is_cuda


def test_graphs_without_a_layout_there_run_on_the_cpu():
    free = mg.FactorGraph([2] * 3, [mg.Ising([0, 1], [1, 2], 0.3, name="J", tied=0)])
    clamped = free.condition({0: 1})
    moments = Expectations(clamped, exact=False, seed=1)({"J": torch.tensor([0.3], device="cuda")})
    assert moments.mean["J"].is_cuda


def test_a_dense_crf():
    """Marginals are within 6 errors of enumeration: t with 15 degrees of freedom, 1 in 40,000."""
    unary, features, weights = small_crf()
    vector = np.linspace(-1, 1, 15).reshape(5, 3)
    marginals, gradient = exact_crf(unary, features, weights, vector)
    crf = DenseCRF(weights, seed=5).to("cuda")
    fields = torch.tensor(unary, device="cuda", requires_grad=True)
    found = crf(fields, features)
    (found * torch.tensor(vector, device="cuda")).sum().backward()
    assert found.is_cuda
    assert (np.abs(found.detach().cpu().numpy() - marginals) < 6 * crf.error.cpu().numpy()).all()
    close = np.abs(fields.grad.cpu().numpy().ravel() - gradient[:15])
    assert (close < 6 * crf.gradient_error[0].cpu().numpy().ravel()).all()
