"""Steps that test the contract of an ensemble: the same on a CPU, in the simulator, on a GPU."""

import numpy as np

import minigibbs as mg
from minigibbs.running.checkpoint.folder import restore_states
from minigibbs.running.checkpoint.saver import stacked
from minigibbs.running.request import Options

WARMUP, FIRST_RECORDS, RECORDS, SEED = 2, 3, 5, 11  # in sweeps
BEYOND = 1 << 40  # a count that no run of a test reaches
# Results of `perform` that are one state per chain.
STATES = ("first", "warmed", "recorded", "later", "restored", "loaded", "moved", "reweighted")


def plan_of(model, graph, chains, backend="cpu"):
    """Plan a run that records every sweep of every chain."""
    rows = {"chains": chains} if backend == "cuda" else {}
    options = Options(
        sampler=model.sampler,
        chains=chains,
        seed=SEED,
        warmup=WARMUP,
        scan=model.scan,
        backend=backend,
        record=mg.Record("marginals", "draws", "energy", **rows),
    )
    return options.plan(graph, RECORDS, sweep_of(graph))


def sweep_of(graph):
    """Return the number of updates of a sweep."""
    return int((graph.evidence < 0).sum())


def states_of(graph, chains, seed):
    """Draw states by a seed; the states of few chains are the first states of many."""
    values = np.random.default_rng(seed).random((chains, len(graph))) * graph.sizes
    clamped = graph.evidence >= 0
    states = values.astype(graph.state_type)
    states[:, clamped] = graph.evidence[clamped]
    return states


class Whole:
    """All groups of a plan as one ensemble.

    `own`: whether the backend creates the groups, so that it can check their states.
    """

    def __init__(self, groups, own=True):
        self.groups, self.own = groups, own

    def states(self):
        return np.concatenate([group.states() for group in self.groups]).copy()

    def load(self, states):
        first = 0
        for group in self.groups:
            group.load(states[first : first + group.chains])
            first += group.chains

    def advance(self, updates, recording=False):
        for group in self.groups:
            group.advance(updates, recording)
            group.warmed += 0 if recording else updates

    def state(self):
        """Return copies, because groups may return their own arrays."""
        rows = [
            {name: array.copy() for name, array in group.rows(0).items()} for group in self.groups
        ]
        return stacked(self.groups), rows

    def schema(self):
        """Return the schema that all groups have."""
        schema = self.groups[0].schema()
        assert all(group.schema() == schema for group in self.groups)
        return schema

    def restore(self, saved):
        states, rows = saved
        if self.own:  # checks all arrays, like a checkpoint
            restore_states(self.groups[0].plan, self.groups, states)
        for number, group in enumerate(self.groups):
            if not self.own:
                group.restore({name: array[number] for name, array in states.items()})
            group.put_rows(0, rows[number])

    def follow(self, before):
        for group, old in zip(self.groups, before.groups, strict=True):
            group.follow(old)

    def collected(self):
        """Return the records of all chains."""
        parts = [group.collect() for group in self.groups]
        names = ("draws", "energy", "counts", "visits")
        return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}

    def counts_every_sweep(self, sweep):
        """Return whether marginals are counted exactly once per sweep."""
        return all(
            getattr(group, "every", group.unit) == group.unit == sweep for group in self.groups
        )


def perform(place, graph, chains):
    """Make an ensemble execute everything in its contract.

    `place(which, states)` creates a `Whole` of the model's weights "graph" or "other".
    """
    sweep, found = sweep_of(graph), {}
    start, elsewhere = states_of(graph, chains, 1), states_of(graph, chains, 2)
    whole = place("graph", start)
    found["first"], schema = whole.states(), whole.schema()
    whole.advance(WARMUP * sweep)
    found["warmed"] = whole.states()
    whole.advance(FIRST_RECORDS * sweep, True)
    found["recorded"], saved = whole.states(), whole.state()
    assert whole.schema() == schema
    assert {name: (array.shape[1:], array.dtype) for name, array in saved[0].items()} == schema
    whole.advance((RECORDS - FIRST_RECORDS) * sweep, True)
    found["later"] = whole.states()
    found |= whole.collected()
    again = place("graph", elsewhere)
    again.restore(saved)
    again.advance((RECORDS - FIRST_RECORDS) * sweep, True)
    found["restored"] = again.states()
    found |= {f"restored {name}": array for name, array in again.collected().items()}
    found["beyond"] = counts_after(again, saved, BEYOND, sweep) - counts_after(
        again, saved, 0, sweep
    )
    whole.load(elsewhere)
    found["loaded"] = whole.states()
    whole.advance(2 * sweep)
    found["moved"] = whole.states()
    other = place("other", start)
    other.follow(whole)
    other.advance(2 * sweep)
    found["reweighted"] = other.states()
    found["every sweep"] = np.array(whole.counts_every_sweep(sweep))
    return found


def counts_after(whole, saved, more, sweep):
    """Return the counts of all rows after a sweep that continues a state with larger counts."""
    states, rows = saved
    larger = states | {"counts": states["counts"] + more}
    for number, group in enumerate(whole.groups):
        group.restore({name: array[number] for name, array in larger.items()})
        group.put_rows(0, rows[number])
    whole.advance(sweep, True)
    counts = whole.state()[0]["counts"]
    return counts.reshape(-1, counts.shape[-1]).copy()


def check(graph, chains, found, reference, bits=True):
    """Compare an ensemble with the reference, and check the general invariants."""
    if bits:
        for name in (*STATES, "draws"):
            expected = reference[name][:chains]
            np.testing.assert_array_equal(found[name], expected, err_msg=name)
    np.testing.assert_array_equal(found["first"], states_of(graph, chains, 1))
    np.testing.assert_array_equal(found["loaded"], states_of(graph, chains, 2))
    np.testing.assert_array_equal(found["draws"][:, -1], found["later"])
    energies = [graph.log_potential(draws) for draws in found["draws"]]
    np.testing.assert_allclose(found["energy"] + graph.offset, energies, rtol=1e-9, atol=1e-9)
    counts, first = found["counts"], graph.packed.first
    np.testing.assert_array_equal(
        np.add.reduceat(counts, first, axis=1), np.repeat(found["visits"][:, None], len(graph), 1)
    )
    last = (first + graph.sizes - 1)[graph.evidence < 0]  # other counts of spins are differences
    assert (found["beyond"][:, last] == BEYOND).all()
    if found["every sweep"]:
        seen = np.zeros(counts.shape)
        for state in np.moveaxis(found["draws"], 1, 0):
            np.add.at(seen, (np.arange(chains)[:, None], first + state), 1)
        np.testing.assert_allclose(counts / found["visits"][:, None], seen / RECORDS, rtol=1e-12)
    for name in ("draws", "energy", "counts", "visits"):
        np.testing.assert_array_equal(found[f"restored {name}"], found[name], err_msg=name)
    np.testing.assert_array_equal(found["restored"], found["later"])
    clamped = graph.evidence >= 0
    for name in STATES:
        assert (found[name] < graph.sizes).all()
        assert (found[name][:, clamped] == graph.evidence[clamped]).all()
    assert chains == 1 or (found["warmed"] != found["first"]).any()
