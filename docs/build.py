"""Chapters of the reference, and the tutorial's pictures, which are made by running it.

`make docs` runs this before it builds the site. Nothing is downloaded, and it takes seconds.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import minigibbs

DOCS = Path(__file__).parent
PICTURES = DOCS / "images" / "tutorial"

# Every public name is in one chapter; a test rejects a name without a chapter.
CHAPTERS: dict[str, list[str]] = {
    "Describing a model": ["FactorGraph", "Grid", "Domains", "Stats"],
    "Factors": ["Unary", "Potts", "Ising", "Table", "Logical", "NoisyMax", "add_noisy_max"],
    "Implicit factors": ["Stencil", "Kernel", "PointKernel", "Points", "Complete", "LowRank"],
    "Answers": ["infer", "infer_many", "Answer", "Answers", "maximize", "Maximum"],
    "Sampling": [
        "sample",
        "sample_until",
        "sample_many",
        "RunCollection",
        "resume",
        "Record",
        "explain",
        "Explanation",
    ],
    "Observables": ["observables"],
    "Learning": ["learn", "resume_learning", "Fit", "from_frames", "Rule", "FrameModel"],
    "Tables": ["learn_structure", "Structure", "learn_tables", "repair", "RepairedTable"],
    "Results": ["Run", "Info", "Marginal", "Summary", "load"],
    "Samplers": [
        "PoissonGibbs",
        "Gibbs",
        "MGPMH",
        "MinGibbs",
        "DoubleMinGibbs",
        "LocalMinibatchGibbs",
        "PoissonMH",
        "TunaMH",
        "Tempering",
        "BlockGibbs",
        "SwendsenWang",
        "ExactSampler",
        "PopulationAnnealing",
        "Sampler",
    ],
    "Energy estimators": [
        "PoissonEstimator",
        "SubsetEstimator",
        "ExactEstimator",
        "CustomEstimator",
        "Estimator",
    ],
    "Files": ["read", "write"],
    "Other libraries": [
        "ising_from_matrix",
        "potts_from_matrix",
        "from_networkx",
        "to_networkx",
        "from_bqm",
        "from_dqm",
        "from_polynomial",
        "from_cqm",
        "Constrained",
        "from_pgmpy",
        "to_pgmpy",
        "from_pyagrum",
        "to_pyagrum",
        "interop",
    ],
    "Ready-made models": ["models"],
    "Exact answers and theory": [
        "exact_marginals",
        "log_partition",
        "exact_draws",
        "exact_distribution",
        "theory",
    ],
    "Errors": [
        "MinigibbsError",
        "GraphError",
        "LearnError",
        "SampleError",
        "FormatError",
        "MissingFileError",
        "TooLargeError",
        "StoppedError",
        "MissingDependencyError",
    ],
}
# Names that are public in their modules, but not in `minigibbs` itself.
INSIDE = {
    "Results": [
        "results.observed.Observations",
        "results.observed.Observation",
        "samplers.tempering.account.Ladder",
        "results.tempered.Temperatures",
        "results.population.Population",
    ],
    "Learning": ["results.likelihood.LogLikelihood"],
    "Tables": ["structure.structure.Edge", "repairing.result.Scores"],
    "Other libraries": [
        "interop.dimod.MiniGibbsSampler",
        "interop.dimod.MiniGibbsAnnealer",
        "interop.sklearn.imputer.CategoricalImputer",
        "interop.sklearn.repairer.TableRepairer",
        "interop.sklearn.machines.BoltzmannMachine",
        "interop.sklearn.machines.RestrictedBoltzmannMachine",
        "interop.torch.Expectations",
        "interop.torch.Moments",
        "interop.torch.expectations",
        "interop.torch_crf.DenseCRF",
        "interop.pymc.GraphStep",
        "interop.jax.graph_gibbs",
        "interop.jax.graph_kernel",
    ],
}


_MARGINALS = ["marginals", "standard_errors", "marginal", "interval", "to_pandas"]
# Members of classes that the reference shows; a test reads this list. Other classes show none.
MEMBERS = {
    "FactorGraph": [
        "log_potential",
        "energy",
        "condition",
        "with_likelihoods",
        "parameters",
        "with_parameters",
        "statistics",
        "free",
        "sizes",
        "names",
        "stats",
        "local_energies",
        "influence",
        "colors",
        "stored",
        "describe",
    ],
    "Domains": ["name", "index", "values", "value", "numbers", "pick"],
    "Grid": ["values"],
    "Table": ["from_probabilities", "from_function"],
    "Unary": ["from_probabilities"],
    "Answer": [
        *_MARGINALS,
        "exact",
        "bounds",
        "joint",
        "probability",
        "likelihood",
        "most_probable",
        "draws",
        "observables",
        "report",
        "save",
        "to_dict",
    ],
    "Answers": ["marginal", "to_pandas"],
    "Maximum": ["value", "values", "log_potential", "proven", "rows", "to_dict"],
    "Run": [
        *_MARGINALS,
        "summary",
        "draws",
        "spins",
        "draws_of",
        "observables",
        "chain_marginals",
        "marginal_error",
        "temperatures",
        "energy_updates",
        "record_updates",
        "interrupted",
        "plot_trace",
        "plot_marginals",
        "plot_autocorrelation",
        "plot_observable",
        "report",
        "to_arviz",
        "save",
    ],
    "RunCollection": ["estimates", "frame", "plot"],
    "Summary": ["least_ess", "rows", "to_dict"],
    "Explanation": ["to_dict"],
    "Fit": [
        "parameters",
        "errors",
        "contrast",
        "log_likelihood",
        "error",
        "pearson",
        "not_determined",
        "plot_moments",
        "report",
        "save",
        "to_dict",
    ],
    "Structure": [
        "names",
        "directed",
        "parents",
        "conditional",
        "encode",
        "infer_many",
        "plot",
        "write",
        "to_dict",
    ],
    "RepairedTable": [
        "frame",
        "cells",
        "certainty",
        "suspicion",
        "dependencies",
        "weights",
        "scores",
        "calibration",
        "plot_calibration",
        "report",
        "to_dict",
    ],
    "Constrained": ["samples"],
    "FrameModel": ["best", "weights"],
    "Sampler": ["describe", "guaranteed_slowdown"],
    "Estimator": ["describe"],
    "Estimate": ["interval"],
    "Observation": [
        "mean",
        "error",
        "interval",
        "estimate",
        "variance",
        "ess",
        "rhat",
        "autocorrelation_time",
        "series",
        "apply",
        "scalar",
    ],
    "Observations": ["to_pandas"],
    "Ladder": ["log_z_interval", "to_dict"],
    "Population": ["warning"],
    "Temperatures": [
        "energy",
        "observed",
        "overlap",
        "log_z",
        "mean",
        "specific_heat",
        "binder",
        "overlap_distribution",
        "plot",
        "plot_overlaps",
    ],
    "Comparison": ["margin", "strain", "holds"],
    "Enumeration": [
        "free",
        "states",
        "log_potential",
        "distribution",
        "phi",
        "spans",
        "adjacent",
        "lines",
    ],
    "Transition": ["marginal", "stationary", "spectral_gap"],
    "Measure": ["width"],
    "MiniGibbsSampler": ["sample", "sample_dqm"],
    "MiniGibbsAnnealer": ["sample", "sample_dqm", "sample_poly", "sample_cqm"],
    "CategoricalImputer": ["fit", "transform", "predict_proba"],
    "TableRepairer": ["fit", "transform", "repairs"],
    "BoltzmannMachine": ["fit", "transform", "sample", "log_likelihood", "score", "score_samples"],
    "RestrictedBoltzmannMachine": [
        "fit",
        "transform",
        "sample",
        "log_likelihood",
        "score",
        "score_samples",
    ],
}
# Classes of results, with those members that are hooks for contributors.
RESULTS: dict[str, list[str]] = {
    "Answer": ["shares", "known", "clamped", "model", "expected", "rows", "log_z_text", "load"],
    "Answers": ["columns", "flat", "rows"],
    "Maximum": [],
    "Run": [
        *("shares", "known_marginals", "judged", "early_counts", "early_visits", "observed"),
        "kept_temperatures",
    ],
    "RunCollection": ["index", "count"],
    "Info": [],
    "Marginal": [],
    "Stats": [],
    "Summary": [],
    "Explanation": [],
    "Fit": ["undetermined", "summary_rows", "parameter_rows"],
    "Structure": ["codes", "summary_rows"],
    "RepairedTable": [
        *("given", "table", "model", "candidates", "probability", "codes", "labels"),
        *("entries", "summary_rows", "best"),
    ],
    "Constrained": ["places"],
    "FrameModel": ["like"],
    "observables.Estimate": [],
    "Observation": ["data"],
    "Ladder": ["from_dict"],
    "Population": [],
    "Temperatures": ["names", "labels", "series", "variables", "log_states", "by_rows"],
    "LogLikelihood": [],
    "Edge": [],
    "Moments": [],
    "Scores": [],
    "theory.Bounds": [],
    "theory.Comparison": [],
    "theory.Transition": [],
}


def inside_module(name: str) -> list[str]:
    """Return the public names of a module such as `theory`, with their paths; none for a class."""
    module = getattr(minigibbs, name, None)
    if not inspect.ismodule(module):
        return []
    local = [one for one, thing in vars(module).items() if _is_local(thing, module)]
    public = getattr(module, "__all__", local)
    return [f"{name}.{one}" for one in public if hasattr(getattr(module, one), "__module__")]


def _is_local(thing: Any, module: Any) -> bool:
    """Return whether a function or class is public and defined in a module."""
    own = getattr(thing, "__module__", "") == module.__name__
    return own and not getattr(thing, "__name__", "_").startswith("_")


def tutorial_blocks() -> list[tuple[str, str]]:
    """Return the code blocks of the tutorial, and their stated output."""
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", text, re.DOTALL)


def run_tutorial(folder: Path) -> list[str]:
    """Run the tutorial's code in a folder; return the output of each block."""
    names: dict[str, Any] = {}
    printed = []
    with contextlib.chdir(folder):
        for code, _ in tutorial_blocks():
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(code, "tutorial.md", "exec"), names)
            printed.append(out.getvalue())
    return printed


def photograph(page: Path, picture: Path) -> None:
    """Take a picture of a page, if a browser is installed."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is not None:
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1500"]
        command = [browser, *options, f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


def main() -> None:
    """Write the tutorial's pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for (code, expected), printed in zip(tutorial_blocks(), run_tutorial(folder), strict=True):
            if printed != expected:
                sys.exit(f"the tutorial should print\n{expected}but prints\n{printed}for\n{code}")
        photograph(folder / "people.html", folder / "report.png")
        PICTURES.mkdir(parents=True, exist_ok=True)
        for picture in folder.glob("*.png"):
            shutil.copyfile(picture, PICTURES / picture.name)
    print("the tutorial prints what it says")


if __name__ == "__main__":
    main()
