"""The chapters of the reference, and the tutorial's pictures, made by running it.

`make docs` runs it before it builds the site; nothing is fetched, and it takes seconds.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PICTURES = DOCS / "images" / "tutorial"

# Every public name in one chapter; a test refuses a name that has none.
CHAPTERS: dict[str, list[str]] = {
    "Describing a model": ["FactorGraph", "Grid", "Domains", "Stats"],
    "Factors": ["Unary", "Potts", "Ising", "Table", "Logical", "NoisyMax", "add_noisy_max"],
    "Implicit factors": ["Stencil", "Kernel", "PointKernel", "Points", "Complete", "LowRank"],
    "Answers": ["infer", "infer_many", "Answer", "Answers", "maximize", "Maximum"],
    "Sampling": [
        "sample",
        "sample_until",
        "sample_many",
        "Runs",
        "resume",
        "Record",
        "explain",
        "Explanation",
    ],
    "Observables": ["observables"],
    "Learning": ["learn", "resume_learning", "Fit", "from_frames", "Rule", "Framed"],
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
        "Exact",
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
    "Ready-made models and exact answers": ["models", "theory"],
    "Errors": [
        "MinigibbsError",
        "GraphError",
        "LearnError",
        "SampleError",
        "FormatError",
        "TooLargeError",
        "StoppedError",
        "MissingDependencyError",
    ],
}
# Names that are public where they are, and not in `minigibbs` itself.
INSIDE = {
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


def tutorial_blocks() -> list[tuple[str, str]]:
    """The tutorial's code, and what it is said to print."""
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", text, re.DOTALL)


def run_tutorial(folder: Path) -> list[str]:
    """Run the tutorial's code in a folder; returns what each block printed."""
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
    """A picture of a page, where there is a browser to take it with."""
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
