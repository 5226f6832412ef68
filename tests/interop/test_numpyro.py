"""NumPyro and blackjax: a hidden Potts chain, compared with its exact posterior."""

from functools import partial

import numpy as np
import pytest

import minigibbs as mg
from tests.interop import hidden_potts as hidden

jax = pytest.importorskip("jax")
numpyro = pytest.importorskip("numpyro")
import jax.numpy as jnp  # noqa: E402
from numpyro import distributions as dist  # noqa: E402
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin  # noqa: E402
from numpyro.infer import MCMC, NUTS, HMCGibbs  # noqa: E402

from minigibbs.jax import graph_kernel  # noqa: E402
from minigibbs.numpyro import graph_gibbs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of these libraries


def means_of(sites):
    return jnp.stack([sites["low"], 0.0, sites["high"]])


def field(sites):
    return -((hidden.Y[:, None] - means_of(sites)) ** 2) / (2 * hidden.SIGMA**2)


def model():
    sites = {
        name: numpyro.sample(name, dist.Normal(*prior)) for name, prior in hidden.PRIOR.items()
    }
    x = numpyro.sample("x", dist.Categorical(jnp.ones((hidden.COUNT, 3)) / 3).to_event(1))
    chain = sites["b"] * (x[1:] == x[:-1]).sum()
    numpyro.factor("chain", chain - hidden.log_partition(sites["b"], jnp.log, jnp.exp))
    numpyro.sample("y", dist.Normal(means_of(sites)[x], hidden.SIGMA), obs=hidden.Y)


def assert_exact(draws):
    """Check means of [chain, draw] arrays within 5 Monte Carlo errors: 1 false alarm in 75,000."""
    means, labels = hidden.exact()
    wanted = dict(means) | {f"x{k}": one for k, one in enumerate(labels)}
    series = {name: np.asarray(draws[name]) for name in means}
    series |= {f"x{k}": np.asarray(draws["x"])[..., k].astype(float) for k in range(hidden.COUNT)}
    for name, one in series.items():
        ess = effective_sample_size(one)
        assert ess > 100, name
        assert split_gelman_rubin(one) < 1.05
        assert abs(one.mean() - wanted[name]) < 5 * one.std() / np.sqrt(ess), name


def test_hmc_gibbs_has_the_exact_posterior():
    update = graph_gibbs(
        hidden.graph(), "x", lambda s: {"b": s["b"][None], "h": field(s)}, sweeps=2
    )
    kernel = HMCGibbs(NUTS(model), gibbs_fn=update, gibbs_sites=["x"])
    mcmc = MCMC(kernel, num_warmup=400, num_samples=1000, num_chains=2, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(1))
    assert_exact(mcmc.get_samples(group_by_chain=True))


def test_a_site_may_have_any_shape():
    """A lattice is a matrix. Strong fields determine each value up to a probability of 2e-9."""
    graph = mg.FactorGraph([2] * 6, [mg.Unary(range(6), np.zeros((6, 2)), name="h")])
    fields = jnp.array([[0.0, 20.0 * (-1) ** k] for k in range(6)])
    update = graph_gibbs(graph, "x", lambda sites: {"h": fields})
    found = jax.jit(update)(jax.random.key(0), {"x": jnp.zeros((2, 3), int)}, {})["x"]
    assert found.tolist() == [[1, 0, 1], [0, 1, 0]]


def test_a_kernel_in_the_style_of_blackjax():
    """With fixed parameters, marginals equal exact inference within 5 standard errors."""
    graph = hidden.graph()
    given = {"b": jnp.array([0.7]), "h": field({"low": -1.0, "high": 1.0})}
    kernel = graph_kernel(graph, sweeps=2)

    def one(state, key):
        state, _ = kernel.step(key, state, given)
        return state, state.position

    start = kernel.init(jnp.zeros(hidden.COUNT, int))
    keys = jax.random.split(jax.random.key(3), 3000)
    draws = np.asarray(jax.lax.scan(one, start, keys)[1])[100:]
    fixed = graph.with_parameters({name: np.asarray(value) for name, value in given.items()})
    answer = mg.infer(fixed, progress=False)
    for k in range(hidden.COUNT):
        series = draws[None, :, k].astype(float)
        error = series.std() / np.sqrt(effective_sample_size(series))
        assert abs(series.mean() - answer.marginal(k).probability @ np.arange(3)) < 5 * error


def log_density(sites, x):
    """Return the log joint density of parameters and labels, up to a constant."""
    prior = sum(-(((sites[name] - mean) / width) ** 2) / 2 for name, (mean, width) in PRIOR)
    chain = sites["b"] * (x[1:] == x[:-1]).sum()
    chain -= hidden.log_partition(sites["b"], jnp.log, jnp.exp)
    return prior + chain + jnp.take_along_axis(field(sites), x[:, None], axis=1).sum()


PRIOR = hidden.PRIOR.items()


def test_with_nuts_of_blackjax_has_the_exact_posterior():
    """Steps alternate: labels by the graph's kernel, parameters by blackjax."""
    blackjax = pytest.importorskip("blackjax")
    labels, nuts = graph_kernel(hidden.graph(), sweeps=2), blackjax.nuts.build_kernel()

    def one(carry, key):
        x, sites = carry
        keys = jax.random.split(key)
        joint = partial(log_density, x=x.position)
        state = blackjax.nuts.init(sites, joint)
        sites = nuts(keys[0], state, joint, 0.4, jnp.ones(3))[0].position
        x, _ = labels.step(keys[1], x, {"b": sites["b"][None], "h": field(sites)})
        return (x, sites), {**sites, "x": x.position}

    runs = []
    for chain in range(2):
        start = (
            labels.init(jnp.zeros(hidden.COUNT, int)),
            {k: jnp.array(m) for k, (m, _) in PRIOR},
        )
        draws = jax.lax.scan(one, start, jax.random.split(jax.random.key(chain), 1500))[1]
        runs.append({name: np.asarray(series)[200:] for name, series in draws.items()})
    assert_exact({name: np.stack([run[name] for run in runs]) for name in runs[0]})


def test_keys_fix_the_draws_and_chains_may_be_mapped():
    kernel = graph_kernel(hidden.graph())
    given = {"h": jnp.zeros((hidden.COUNT, 3))}
    starts = jnp.zeros((3, hidden.COUNT), int)
    step = jax.vmap(lambda key, x: kernel.step(key, kernel.init(x), given)[0].position)
    keys = jax.random.split(jax.random.key(0), 3)
    first, again = step(keys, starts), step(keys, starts)
    np.testing.assert_array_equal(first, again)
    assert len({tuple(row) for row in np.asarray(first).tolist()}) == 3


def test_a_step_is_the_same_with_and_without_compilation():
    kernel = graph_kernel(hidden.graph())
    state, key = kernel.init(jnp.zeros(hidden.COUNT, int)), jax.random.key(5)
    given = {"b": jnp.array([1], dtype=int), "h": jnp.zeros((hidden.COUNT, 3), jnp.bfloat16)}
    plain, compiled = (step(key, state, given)[0] for step in (kernel.step, jax.jit(kernel.step)))
    np.testing.assert_array_equal(plain.position, compiled.position)


def test_bad_input():
    kernel = graph_kernel(hidden.graph())
    with pytest.raises(mg.GraphError, match="position must hold 20 integers"):
        kernel.init(jnp.zeros(3, int))
    state = kernel.init(jnp.zeros(hidden.COUNT, int))
    key = jax.random.key(0)
    with pytest.raises(mg.GraphError, match="unknown parameter 'J'"):
        kernel.step(key, state, {"J": jnp.zeros(1)})
    with pytest.raises(mg.GraphError, match=r"'b' must .* shape \(1,\).* got shape \(3,\)"):
        jax.jit(kernel.step)(key, state, {"b": jnp.zeros(3)})  # raised during tracing
    with pytest.raises(mg.GraphError, match=r"'b'\[0\] must be finite; got inf"):
        kernel.step(key, state, {"b": jnp.array([jnp.inf])})
    with pytest.raises(Exception, match="got NaN"):  # JAX's error quotes ours
        jax.jit(kernel.step)(key, state, {"b": jnp.array([jnp.nan])})
    with pytest.raises(mg.GraphError, match="arrays by name, got list"):
        kernel.step(key, state, [0.5])
    with pytest.raises(mg.GraphError, match="values from 0 to 2, got 5"):
        kernel.init(jnp.full(hidden.COUNT, 5))
    clamped = graph_kernel(hidden.graph().condition({3: 1}))
    with pytest.raises(mg.GraphError, match="variable 3: the graph clamps it to 1"):
        clamped.init(jnp.zeros(hidden.COUNT, int))
    update = graph_gibbs(hidden.graph(), "z", lambda sites: {})
    with pytest.raises(mg.GraphError, match="unknown site 'z': the Gibbs sites are 'x'"):
        update(jax.random.key(0), {"x": jnp.zeros(hidden.COUNT, int)}, {})
    with pytest.raises(mg.GraphError, match="implicit"):
        graph_kernel(mg.FactorGraph([2] * 6, [mg.Complete(6, 0.2)]))
