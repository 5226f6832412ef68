"""Poisson-Gibbs with exactly evaluated strong factors: exact, with updates of bounded cost.

The basis is Zhang and De Sa 2019, "Poisson-Minibatching for Gibbs Sampling with Convergence Rate
Guarantees" (arXiv:1911.09771). The factors at a variable are split into a heavy part, evaluated
exactly, and a tail T with L_T = sum of its M. The parameter theta is positive. An update (1) draws
Poisson((1 + theta) * L_T) factors of the tail, each with probability M / L_T. It (2) keeps a draw
with probability (theta * M + phi(x)) / ((theta + 1) * M). It (3) redraws the value with weight
exp(heavy part) * product over kept draws of (1 + phi(x with that value) / (theta * M)). This is
Gibbs sampling on (x, s) with the counts s redrawn each time, so the stationary distribution is the
model's, and nothing is ever rejected. The spectral gap of its random scan is at least exp(-L_T / (4
theta + 1)) times plain Gibbs's; docs/theory.md has the proof, and a weaker bound for systematic
scans. If only unary factors are evaluated exactly and theta = lambda / L, it is the algorithm as
published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minigibbs.engine.chain import Workspace
from minigibbs.errors import SampleError
from minigibbs.exact.enumeration import Enumeration
from minigibbs.exact.transition import Transition
from minigibbs.graph.graph import FactorGraph
from minigibbs.graph.prepared import prepared
from minigibbs.kernels.touched import DENSE_DOMAIN
from minigibbs.samplers.base import Sampler, far_share, mean_row
from minigibbs.samplers.bounds import check_settings, guarantee
from minigibbs.samplers.gibbs.fields import FieldData, rare_changes
from minigibbs.samplers.gibbs.sampler import gibbs_operations, sum_unary
from minigibbs.samplers.gibbs.spin_fields import SpinFieldData
from minigibbs.samplers.poisson_gibbs.groups import implicit_space
from minigibbs.samplers.poisson_gibbs.split import (
    Split,
    all_heavy,
    choose_split,
    worth_splitting,
)
from minigibbs.samplers.poisson_gibbs.transition import poisson_gibbs_transition
from minigibbs.samplers.poisson_gibbs.tuning import measured_stickiness
from minigibbs.samplers.poisson_gibbs.updates.spins import SPINS
from minigibbs.samplers.registry import choose_variant, variant_of
from minigibbs.system.boundary import checked

SPLIT = "split"  # the kind of this entry among prepared results
MEASURED = "measured"  # the setting that requests a measured stickiness
_LEAST_THETA = 1e-100  # keeps 1 / theta squared finite


@checked(SampleError)
@dataclass(frozen=True)
class PoissonGibbs(Sampler):
    """Poisson-minibatched Gibbs with exactly evaluated strong factors: the default sampler.

    Its stationary distribution is exactly that of the model. By default it splits the factors of
    each variable into exactly evaluated and minibatched ones so that the time per effective sample
    is smallest. If minibatching is not faster, it is plain Gibbs.

    Parameters
    ----------
    slowdown : float, optional
        A guarantee about the random scan: its spectral gap is at least 1/slowdown of that of plain
        Gibbs. For systematic and chromatic scans the guarantee is weaker: 1 - ||sweep||^2 is at
        most 2 * slowdown - 1 times smaller (`mg.theory.systematic_slowdown`). By default there is
        no requested guarantee and the fastest setting is used; `describe` states the guarantee that
        holds anyway.
    theta : float, optional
        The rate of auxiliary draws. Larger values are closer to plain Gibbs and draw more.
    heavy : int, optional
        The number of each variable's strongest factors to evaluate exactly, in addition to its
        unary factors and those with hard constraints. 0 gives Poisson-Gibbs as published, with
        theta = lambda / L; the largest degree gives plain Gibbs.
    stickiness : float or str, optional
        How much the auxiliary draws slow convergence, from 0 to 1. Theta and the split depend on
        it: smaller values lead to fewer draws and fewer exactly evaluated factors. By default a
        constant that was measured on some models. "measured" measures it on the graph, in short
        runs before the run. That takes as long as tens of millions of draws, at least 48 sweeps,
        and compilation. The stationary distribution does not change, because nothing is adapted
        while a run records. A seed fixes the draws, because the short runs count updates and do not
        measure time.

    Raises
    ------
    SampleError
        If settings contradict each other or are out of range.

    Examples
    --------
    >>> import minigibbs as mg
    >>> print(mg.PoissonGibbs(slowdown=1.01).describe(mg.models.potts_rbf()))
    Poisson-Gibbs: exact; an update evaluates 7.41 of a variable's 396.7 factors and draws 0.121 of
    the others. Guaranteed: at most 1.01 times slower than plain Gibbs (spectral gap, random scan).
    """

    slowdown: float | None = None
    theta: float | None = None
    heavy: int | None = None
    stickiness: float | str | None = None
    name = "poisson-gibbs"
    draws_implicit = True
    takes_zeros = True

    def __post_init__(self) -> None:
        check_settings("PoissonGibbs", slowdown=self.slowdown)
        if self.theta is not None and self.slowdown is not None:
            raise SampleError(
                f"PoissonGibbs: give theta or a slowdown, not both; got {self.theta!r} and "
                f"{self.slowdown!r}"
            )
        if self.theta is not None and not _LEAST_THETA <= self.theta < math.inf:
            raise SampleError(
                f"PoissonGibbs: theta must be above 0, and at least {_LEAST_THETA}, got "
                f"{self.theta!r}"
            )
        sticky = self.stickiness
        number = isinstance(sticky, int | float | np.number) and not isinstance(sticky, bool)
        known = sticky is None or (isinstance(sticky, str) and sticky == MEASURED)
        if not known and not (number and 0.0 <= float(sticky) <= 1.0):  # type: ignore[arg-type]
            raise SampleError(
                f'PoissonGibbs: stickiness must be a number from 0 to 1, "{MEASURED}" or None, got '
                f"{sticky!r}"
            )
        whole = isinstance(self.heavy, int | np.integer) and not isinstance(self.heavy, bool)
        if self.heavy is not None and not (whole and self.heavy >= 0):
            raise SampleError(
                f"PoissonGibbs: heavy must be an integer of at least 0, got {self.heavy!r}"
            )

    def settled(self, graph: FactorGraph) -> PoissonGibbs:
        """Return the sampler with its stickiness measured, if that was requested."""
        if self.stickiness != MEASURED:
            return self
        return replace(self, stickiness=measured_stickiness(graph))

    @property
    def _told(self) -> bool:
        """Return whether settings determine the split."""
        return (self.slowdown, self.theta, self.heavy) != (None, None, None)

    def evaluates_all(self, graph: FactorGraph) -> bool:
        """Return True for a stencil with unary factors, unless the sampler has settings."""
        return not self._told and graph.lattice is not None

    @property
    def random_because(self) -> str:
        """Reason for random orders: a guarantee needs them; without one, any order is valid."""
        return "" if self.slowdown is None else "the guaranteed slowdown is that of a random order"

    def check_chromatic(self) -> None:
        """Accept chromatic scans."""

    def factor_split(self, graph: FactorGraph, lanes: int = 1) -> Split:
        """Split the factors into heavy and minibatched ones."""
        return self.split(graph, lanes)

    def split(self, graph: FactorGraph, lanes: int = 1) -> Split:
        """Split the factors into heavy and minibatched ones; all are heavy if the gain is small.

        Results are cached with the graph, because costs are requested before data are prepared, and
        vectorized chains have a split of their own.
        """
        key = (str(self), lanes)
        return prepared(graph, SPLIT, key, lambda: self._split(graph, lanes))

    def _split(self, graph: FactorGraph, lanes: int) -> Split:
        sticky = self.settled(graph).stickiness
        assert not isinstance(sticky, str)
        split = choose_split(graph, self.slowdown, self.theta, self.heavy, lanes, sticky)
        if self.evaluates_all(graph):
            return all_heavy(split)
        if not self._told and split.tail.any():
            alone = lanes == 1
            rate = rare_changes(graph, FieldData(sum_unary(graph.packed))) if alone else None
            if not worth_splitting(graph, split, rate):
                return all_heavy(split)
        return split

    def prepare(self, graph: FactorGraph, lanes: int = 1) -> Any:
        """Lay out the split graph: heavy lists and alias tables, or the arrays of plain Gibbs."""
        split = self.split(graph, lanes)
        return choose_variant(graph, split).prepare(graph, split)

    def workspace(self, graph: FactorGraph, data: Any) -> Workspace:
        """Return the sizes of the variant's arrays plus those of the implicit groups."""
        space = variant_of(data).workspace(graph)
        carried, scratch = implicit_space(getattr(data, "implicit", None))
        return replace(space, carried=space.carried + carried, scratch=space.scratch + scratch)

    def operations(self, graph: FactorGraph, lanes: int = 1) -> dict[str, float]:
        """Count exactly evaluated factors, draws, and all values if domains are small."""
        split, row = self.split(graph, lanes), mean_row(graph)
        if split.implicits:
            return self._implicit_operations(graph, split)
        if not split.tail.any():
            return gibbs_operations(graph, choose_variant(graph, split).prepare(graph, split))
        free = max(graph.stats.variables, 1)
        heavy, draws = self._counts(graph, split)
        light = max(row["pairs"] + row["general"], 1e-300)
        spins, share = choose_variant(graph, split) is SPINS, row["general"] / light
        pair = "odds" if spins else "heavy" if row["values"] <= DENSE_DOMAIN else "touch"
        slots = row["slots"] / max(row["general"], 1e-300)
        visits = heavy * share + 2.0 * draws * share
        size = 16 * len(split.heavy) + 56 * len(graph.packed.factors)
        far = (2.0 + 4.0 * share) * draws * far_share(size)
        return {
            "update": 1.0,
            pair: heavy * (1.0 - share),
            "value": 0.0 if spins or row["values"] > DENSE_DOMAIN else row["values"],
            "tail": 1.0,
            "draw": draws,
            "general": visits,
            "slot": visits * slots,
            "cell": visits * row["values"],
            "far": far + 4.0 * far_share(100 * free),
        }

    def _counts(self, graph: FactorGraph, split: Split) -> tuple[float, float]:
        """Return the mean numbers of heavy factors (unary ones excluded) and draws per update."""
        rows, free = graph.packed.rows, max(int(np.count_nonzero(graph.evidence < 0)), 1)
        unary = float((rows["end"] - rows["unary_begin"]).sum())
        heavy = (float(np.count_nonzero(split.heavy)) - unary) / free
        return heavy, float(((1 + split.theta) * split.tail)[graph.evidence < 0].sum()) / free

    def _implicit_operations(self, graph: FactorGraph, split: Split) -> dict[str, float]:
        values = float(graph.sizes.mean())
        heavy, draws = self._counts(graph, split)
        return {
            "update": 1.0,
            "heavy": heavy,
            "touch": 2.0 * sum(group.heavy for group in split.implicits),
            "value": 0.0 if values > DENSE_DOMAIN else values,
            "cell": float(sum(group.projected for group in split.implicits)),
            "tail": float(sum(group.tail > 0.0 for group in split.implicits) + split.tail.any()),
            "draw": 2.0 * sum(group.draws for group in split.implicits) + draws,
            "far": 3.0 * far_share(len(graph)),
        }

    def guaranteed_slowdown(self, graph: FactorGraph, lanes: int = 1) -> float:
        """Compute the bound of docs/theory.md on the spectral gap of the random scan."""
        if self.evaluates_all(graph):
            return 1.0
        return math.exp(min(self.split(graph, lanes).log_slowdown, 700.0))

    def reason(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Explain the choice of the split."""
        stats, split = graph.stats, self.split(graph, lanes)
        if graph.implicits:
            what = self._describe_implicit(graph, split).split("; ", 1)[1]
            return f"it is the one that draws from implicit factors. On this model {what}"
        heavy, draws = self._counts(graph, split)
        degree = mean_row(graph)["pairs"] + mean_row(graph)["general"]
        if split.tail.any():
            return (
                f"an update evaluates {heavy:.3g} of a variable's {degree:,.4g} factors and draws "
                f"{draws:.3g} of the others."
            )
        if degree < 16:
            return (
                f"a variable has {degree:.3g} factors, so there is little to save: it is plain "
                "Gibbs."
            )
        if len(graph.hard):
            return "factors with hard constraints are evaluated, and no other is worth drawing."
        return (
            f"the factors are strong for their number (L = {stats.local_energy:.3g}, Delta = "
            f"{stats.max_degree:,}): drawing some would need more draws than evaluating all, so it "
            "is plain Gibbs."
        )

    def describe(self, graph: FactorGraph, lanes: int = 1) -> str:
        """Describe the split, the cost and the bound."""
        split, slowdown = self.split(graph, lanes), self.guaranteed_slowdown(graph, lanes)
        if split.implicits:
            return f"{self._describe_implicit(graph, split)} {guarantee(slowdown)}"
        free = max(int(np.count_nonzero(graph.evidence < 0)), 1)
        heavy = float(split.heavy.sum()) / free
        if not split.tail.any():
            remembers = isinstance(self.prepare(graph, lanes), FieldData | SpinFieldData)
            when = ", with cached fields that only changes of a value update" if remembers else ""
            what = f"an update evaluates all {heavy:.3g} factors of a variable: plain Gibbs{when}"
            return f"Poisson-Gibbs: exact; {what}."
        draws = float(((1 + split.theta) * split.tail).sum()) / free
        return (
            f"Poisson-Gibbs: exact; an update evaluates {heavy:.3g} of a variable's "
            f"{len(split.heavy) / free:.4g} factors and draws {draws:.3g} of the others. "
            f"{guarantee(slowdown)}"
        )

    def _describe_implicit(self, graph: FactorGraph, split: Split) -> str:
        heavy, draws = self._counts(graph, split)
        which = "stored and implicit" if draws else "implicit"
        heavy += sum(group.heavy for group in split.implicits)
        proposed = draws + sum(group.draws for group in split.implicits)
        draws += sum(group.draws * group.kept for group in split.implicits)
        sums = sum(group.projected for group in split.implicits)
        carried = f"{sums:,} running sums instead of low-rank factors; " if sums else ""
        looks = f"evaluates {heavy:.3g} factors and " if heavy else ""
        more = f" ({proposed / draws:.3g} proposals for each draw)" if proposed > draws else ""
        return (
            f"Poisson-Gibbs: exact; {carried}an update {looks}draws {draws:.3g} {which} factors "
            f"on average{more}."
        )

    def transition(self, everything: Enumeration) -> Transition:
        """Compute the matrix of Gibbs sampling on (state, counts)."""
        return poisson_gibbs_transition(everything, self.split(everything.graph))
