"""minigibbs: exact, fast sampling of large discrete graphical models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from minigibbs._version import __version__

if TYPE_CHECKING:
    from minigibbs import interop, models, theory
    from minigibbs.errors import (
        FormatError,
        GraphError,
        MinigibbsError,
        MissingDependencyError,
        SampleError,
        StoppedError,
        TooLargeError,
    )
    from minigibbs.explanation.explain import Explanation, explain
    from minigibbs.formats import load, read, write
    from minigibbs.graph.domains import Grid
    from minigibbs.graph.factors import (
        Complete,
        Ising,
        Kernel,
        Logical,
        LowRank,
        Potts,
        Table,
        Unary,
    )
    from minigibbs.graph.graph import FactorGraph
    from minigibbs.interop.matrices import ising, potts
    from minigibbs.interop.networkx import from_networkx, to_networkx
    from minigibbs.interop.pgmpy import from_pgmpy, to_pgmpy
    from minigibbs.interop.quadratic import from_bqm, from_dqm
    from minigibbs.results.run import Run
    from minigibbs.running.api import resume, sample, sample_until
    from minigibbs.samplers import (
        MGPMH,
        CustomEstimator,
        DoubleMinGibbs,
        Estimator,
        ExactEstimator,
        Gibbs,
        LocalMinibatchGibbs,
        MinGibbs,
        PoissonEstimator,
        PoissonGibbs,
        PoissonMH,
        Sampler,
        SubsetEstimator,
        TunaMH,
    )

# Where each public name lives. Names load on first use, since compiling tools are slow to import.
_HOMES = {
    "interop": "",
    "models": "",
    "theory": "",
    **dict.fromkeys(["Grid"], "graph.domains"),
    **dict.fromkeys(
        [
            "FormatError",
            "GraphError",
            "MinigibbsError",
            "MissingDependencyError",
            "SampleError",
            "StoppedError",
            "TooLargeError",
        ],
        "errors",
    ),
    **dict.fromkeys(
        ["Complete", "Ising", "Kernel", "Logical", "LowRank", "Potts", "Table", "Unary"],
        "graph.factors",
    ),
    **dict.fromkeys(["load", "read", "write"], "formats"),
    **dict.fromkeys(["Explanation", "explain"], "explanation.explain"),
    **dict.fromkeys(["FactorGraph"], "graph.graph"),
    **dict.fromkeys(["ising", "potts"], "interop.matrices"),
    **dict.fromkeys(["from_networkx", "to_networkx"], "interop.networkx"),
    **dict.fromkeys(["from_pgmpy", "to_pgmpy"], "interop.pgmpy"),
    **dict.fromkeys(["from_bqm", "from_dqm"], "interop.quadratic"),
    **dict.fromkeys(["Run"], "results.run"),
    **dict.fromkeys(["resume", "sample", "sample_until"], "running.api"),
    **dict.fromkeys(
        [
            "CustomEstimator",
            "DoubleMinGibbs",
            "Estimator",
            "ExactEstimator",
            "Gibbs",
            "LocalMinibatchGibbs",
            "MGPMH",
            "MinGibbs",
            "PoissonEstimator",
            "PoissonGibbs",
            "PoissonMH",
            "Sampler",
            "SubsetEstimator",
            "TunaMH",
        ],
        "samplers",
    ),
}

__all__ = [
    "MGPMH",
    "Complete",
    "CustomEstimator",
    "DoubleMinGibbs",
    "Estimator",
    "ExactEstimator",
    "Explanation",
    "FactorGraph",
    "FormatError",
    "Gibbs",
    "GraphError",
    "Grid",
    "Ising",
    "Kernel",
    "LocalMinibatchGibbs",
    "Logical",
    "LowRank",
    "MinGibbs",
    "MinigibbsError",
    "MissingDependencyError",
    "PoissonEstimator",
    "PoissonGibbs",
    "PoissonMH",
    "Potts",
    "Run",
    "SampleError",
    "Sampler",
    "StoppedError",
    "SubsetEstimator",
    "Table",
    "TooLargeError",
    "TunaMH",
    "Unary",
    "__version__",
    "explain",
    "from_bqm",
    "from_dqm",
    "from_networkx",
    "from_pgmpy",
    "interop",
    "ising",
    "load",
    "models",
    "potts",
    "read",
    "resume",
    "sample",
    "sample_until",
    "theory",
    "to_networkx",
    "to_pgmpy",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'minigibbs' has no attribute {name!r}")
    home = _HOMES[name]
    module = importlib.import_module(f"minigibbs.{home or name}")
    value = getattr(module, name) if home else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
