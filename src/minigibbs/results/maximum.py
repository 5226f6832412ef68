"""Result of `mg.maximize`: the best state found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minigibbs.errors import SampleError
from minigibbs.graph.domains import Domains
from minigibbs.system.boundary import checked
from minigibbs.system.text import printable

_SHOWN = 8  # variables up to which the state is displayed
_SAME = 1e-6  # relative difference of energies that counts as rounding


@checked(SampleError, init=False)
@dataclass(frozen=True, eq=False)
class Maximum:
    """The result of `mg.maximize`: the best state found.

    Attributes
    ----------
    domains : Domains
        Sizes, names and labels of the variables.
    state : ndarray of int
        [variable] index of the value of each variable.
    energy : float
        Energy of the state, as `graph.energy` computes it.
    seconds : float
        Time of the search, without compilation.
    rounds : int
        Rounds of each chain: sweeps of all temperatures.
    chains : int
        Number of independent searches.
    reached : int
        Number of searches that found this energy. A single one of many is little evidence.
    ended : str
        Reason for the end: "rounds", "time", "interrupted", "terminated", or "proven".
    local_maximum : bool
        Whether no change of one variable improves the state.
    method : str
        "elimination", "tempering" or "annealing".
    reason : str
        Reason for the choice of the method.
    bound : float or None
        Proven lower bound on the energy of all states; None without a proof.

    Examples
    --------
    >>> import minigibbs as mg
    >>> graph = mg.FactorGraph([2], [mg.Unary([0], [0.0, 1.0])], ["rain"], [["no", "yes"]])
    >>> best = mg.maximize(graph, rounds=10, seed=1, progress=False)
    >>> best.value("rain"), best.energy
    ('yes', -1.0)
    """

    domains: Domains = field(repr=False)
    state: NDArray[Any]
    energy: float
    seconds: float
    rounds: int
    chains: int
    reached: int
    ended: str = "rounds"
    local_maximum: bool = True
    method: str = ""
    reason: str = ""
    bound: float | None = None

    @property
    def proven(self) -> bool:
        """Whether the state is proven to be optimal, up to rounding."""
        margin = _SAME * max(1.0, abs(self.energy))
        return self.bound is not None and self.energy <= self.bound + margin

    @property
    def log_potential(self) -> float:
        """The log-potential of the state, as in `graph.log_potential`: minus the energy."""
        return 0.0 - self.energy

    @property
    def values(self) -> dict[str, Any]:
        """The value of each variable by its name; `x7` is variable 7 if it has none."""
        names = (self.domains.name(number) for number in range(len(self.domains)))
        return {name: self.value(number) for number, name in enumerate(names)}

    def value(self, variable: int | str) -> Any:
        """Return the value of one variable: its label, grid point or number.

        Parameters
        ----------
        variable : int or str
            The variable, by number or name.

        Returns
        -------
        object
            The value.
        """
        number = self.domains.index(variable)
        return self.domains.values(number)[self.state[number]]

    def to_dict(self) -> dict[str, Any]:
        """Return the state by names, and the other fields, for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        state = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.values.items()
        }
        return {
            "energy": self.energy,
            "seconds": self.seconds,
            "rounds": self.rounds,
            "chains": self.chains,
            "reached": self.reached,
            "ended": self.ended,
            "local_maximum": self.local_maximum,
            "method": self.method,
            "reason": self.reason,
            "bound": self.bound,
            "proven": self.proven,
            "state": state,
        }

    def _state_text(self) -> str:
        return ", ".join(printable(f"{name}={value}") for name, value in self.values.items())

    def _bound_text(self) -> str:
        return f"{self.bound:.10g}" + (
            " (proven: no state has a lower energy)" if self.proven else ""
        )

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the displayed table.

        Returns
        -------
        list of (str, str)
            Label and value.
        """
        return [
            ("energy", f"{self.energy:.10g}"),
            *([("state", self._state_text())] if len(self.domains) <= _SHOWN else []),
            *([("reached by", f"{self.reached} of {self.chains} chains")] if self.chains else []),
            *([] if self.bound is None else [("bound", self._bound_text())]),
            *([("method", f"{self.method}: {self.reason}")] if self.method else []),
            *([("rounds", f"{self.rounds:,}")] if self.chains else []),
            ("seconds", f"{self.seconds:.2f}"),
        ]

    def _repr_html_(self) -> str:
        """Return the result as HTML tables, for notebooks."""
        from minigibbs.results.notebook import maximum_html

        return maximum_html(self)

    def __str__(self) -> str:
        return "\n".join(f"{label:<12}{value}" for label, value in self.rows())
