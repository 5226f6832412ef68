"""minigibbs: exact, fast sampling of large discrete graphical models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from minigibbs._version import __version__

if TYPE_CHECKING:
    from minigibbs import interop, models, observables, theory
    from minigibbs.errors import (
        FormatError,
        GraphError,
        LearnError,
        MinigibbsError,
        MissingDependencyError,
        MissingFileError,
        SampleError,
        StoppedError,
        TooLargeError,
    )
    from minigibbs.exact.elimination import exact_draws, exact_marginals, log_partition
    from minigibbs.exact.enumeration import exact_distribution
    from minigibbs.explanation.explain import Explanation, explain
    from minigibbs.formats import read, write
    from minigibbs.graph.domains import Domains, Grid
    from minigibbs.graph.factors import (
        Complete,
        Ising,
        Kernel,
        Logical,
        LowRank,
        PointKernel,
        Points,
        Potts,
        Stencil,
        Table,
        Unary,
    )
    from minigibbs.graph.graph import FactorGraph
    from minigibbs.graph.noisy import NoisyMax, add_noisy_max
    from minigibbs.graph.stats import Stats
    from minigibbs.inference.infer import infer
    from minigibbs.inference.many import infer_many
    from minigibbs.inference.maximize import maximize
    from minigibbs.inference.population import PopulationAnnealing
    from minigibbs.interop.constrained import Constrained, from_cqm
    from minigibbs.interop.frames import FrameModel, Rule, from_frames
    from minigibbs.interop.matrices import ising_from_matrix, potts_from_matrix
    from minigibbs.interop.networkx import from_networkx, to_networkx
    from minigibbs.interop.pgmpy import from_pgmpy, to_pgmpy
    from minigibbs.interop.polynomial import from_polynomial
    from minigibbs.interop.pyagrum import from_pyagrum, to_pyagrum
    from minigibbs.interop.quadratic import from_bqm, from_dqm
    from minigibbs.learning.api import learn, resume_learning
    from minigibbs.repairing.api import repair
    from minigibbs.repairing.result import RepairedTable
    from minigibbs.results.answer import Answer
    from minigibbs.results.answers import Answers
    from minigibbs.results.fit import Fit
    from minigibbs.results.marginals import Marginal
    from minigibbs.results.maximum import Maximum
    from minigibbs.results.run import Info, Run
    from minigibbs.results.summary import Summary
    from minigibbs.running.api import resume, sample, sample_until
    from minigibbs.running.load import load
    from minigibbs.running.many import RunCollection, sample_many
    from minigibbs.running.request import Record
    from minigibbs.samplers import (
        MGPMH,
        BlockGibbs,
        CustomEstimator,
        DoubleMinGibbs,
        Estimator,
        ExactEstimator,
        ExactSampler,
        Gibbs,
        LocalMinibatchGibbs,
        MinGibbs,
        PoissonEstimator,
        PoissonGibbs,
        PoissonMH,
        Sampler,
        SubsetEstimator,
        SwendsenWang,
        Tempering,
        TunaMH,
    )
    from minigibbs.structure.api import learn_structure
    from minigibbs.structure.parameters import learn_tables
    from minigibbs.structure.structure import Structure

# The module of each public name. Names load on first use, because compilers are slow to import.
_HOMES = {
    "interop": "",
    "models": "",
    "observables": "",
    "theory": "",
    **dict.fromkeys(["Domains", "Grid"], "graph.domains"),
    **dict.fromkeys(
        [
            "FormatError",
            "GraphError",
            "LearnError",
            "MinigibbsError",
            "MissingDependencyError",
            "MissingFileError",
            "SampleError",
            "StoppedError",
            "TooLargeError",
        ],
        "errors",
    ),
    **dict.fromkeys(
        [
            "Complete",
            "Ising",
            "Kernel",
            "Logical",
            "LowRank",
            "PointKernel",
            "Points",
            "Potts",
            "Stencil",
            "Table",
            "Unary",
        ],
        "graph.factors",
    ),
    **dict.fromkeys(["exact_draws", "exact_marginals", "log_partition"], "exact.elimination"),
    "exact_distribution": "exact.enumeration",
    **dict.fromkeys(["read", "write"], "formats"),
    "load": "running.load",
    **dict.fromkeys(["Explanation", "explain"], "explanation.explain"),
    "FactorGraph": "graph.graph",
    "Stats": "graph.stats",
    **dict.fromkeys(["NoisyMax", "add_noisy_max"], "graph.noisy"),
    **dict.fromkeys(["FrameModel", "Rule", "from_frames"], "interop.frames"),
    **dict.fromkeys(["ising_from_matrix", "potts_from_matrix"], "interop.matrices"),
    **dict.fromkeys(["from_networkx", "to_networkx"], "interop.networkx"),
    **dict.fromkeys(["from_pgmpy", "to_pgmpy"], "interop.pgmpy"),
    **dict.fromkeys(["from_pyagrum", "to_pyagrum"], "interop.pyagrum"),
    **dict.fromkeys(["from_bqm", "from_dqm"], "interop.quadratic"),
    **dict.fromkeys(["Constrained", "from_cqm"], "interop.constrained"),
    "from_polynomial": "interop.polynomial",
    "Answer": "results.answer",
    "Fit": "results.fit",
    "Answers": "results.answers",
    "infer": "inference.infer",
    "infer_many": "inference.many",
    **dict.fromkeys(["learn", "resume_learning"], "learning.api"),
    "learn_structure": "structure.api",
    "learn_tables": "structure.parameters",
    "Structure": "structure.structure",
    "maximize": "inference.maximize",
    "PopulationAnnealing": "inference.population",
    "RepairedTable": "repairing.result",
    "repair": "repairing.api",
    "Maximum": "results.maximum",
    "Marginal": "results.marginals",
    **dict.fromkeys(["Info", "Run"], "results.run"),
    "Summary": "results.summary",
    "Record": "running.request",
    **dict.fromkeys(["RunCollection", "sample_many"], "running.many"),
    **dict.fromkeys(["resume", "sample", "sample_until"], "running.api"),
    **dict.fromkeys(
        [
            "BlockGibbs",
            "CustomEstimator",
            "DoubleMinGibbs",
            "Estimator",
            "ExactSampler",
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
            "SwendsenWang",
            "Tempering",
            "TunaMH",
        ],
        "samplers",
    ),
}

__all__ = [
    "MGPMH",
    "Answer",
    "Answers",
    "BlockGibbs",
    "Complete",
    "Constrained",
    "CustomEstimator",
    "Domains",
    "DoubleMinGibbs",
    "Estimator",
    "ExactEstimator",
    "ExactSampler",
    "Explanation",
    "FactorGraph",
    "Fit",
    "FormatError",
    "FrameModel",
    "Gibbs",
    "GraphError",
    "Grid",
    "Info",
    "Ising",
    "Kernel",
    "LearnError",
    "LocalMinibatchGibbs",
    "Logical",
    "LowRank",
    "Marginal",
    "Maximum",
    "MinGibbs",
    "MinigibbsError",
    "MissingDependencyError",
    "MissingFileError",
    "NoisyMax",
    "PointKernel",
    "Points",
    "PoissonEstimator",
    "PoissonGibbs",
    "PoissonMH",
    "PopulationAnnealing",
    "Potts",
    "Record",
    "RepairedTable",
    "Rule",
    "Run",
    "RunCollection",
    "SampleError",
    "Sampler",
    "Stats",
    "Stencil",
    "StoppedError",
    "Structure",
    "SubsetEstimator",
    "Summary",
    "SwendsenWang",
    "Table",
    "Tempering",
    "TooLargeError",
    "TunaMH",
    "Unary",
    "__version__",
    "add_noisy_max",
    "exact_distribution",
    "exact_draws",
    "exact_marginals",
    "explain",
    "from_bqm",
    "from_cqm",
    "from_dqm",
    "from_frames",
    "from_networkx",
    "from_pgmpy",
    "from_polynomial",
    "from_pyagrum",
    "infer",
    "infer_many",
    "interop",
    "ising_from_matrix",
    "learn",
    "learn_structure",
    "learn_tables",
    "load",
    "log_partition",
    "maximize",
    "models",
    "observables",
    "potts_from_matrix",
    "read",
    "repair",
    "resume",
    "resume_learning",
    "sample",
    "sample_many",
    "sample_until",
    "theory",
    "to_networkx",
    "to_pgmpy",
    "to_pyagrum",
    "write",
]


# Interfaces to large libraries: public modules that `from minigibbs import *` does not import.
_BRIDGES = ("jax", "numpyro", "pymc", "sklearn", "torch")


def __getattr__(name: str) -> Any:
    if name in _BRIDGES:
        return importlib.import_module(f"minigibbs.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'minigibbs' has no attribute {name!r}")
    home = _HOMES[name]
    module = importlib.import_module(f"minigibbs.{home or name}")
    value = getattr(module, name) if home else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
