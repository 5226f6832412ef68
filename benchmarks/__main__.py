"""Run the benchmarks named on the command line, or all."""

import importlib
import sys

BENCHMARKS = [
    "foundation",
    "first_calls",
    "coverage",
    "verdicts",
    "defaults",
    "samplers",
    "flagship",
    "split",
    "conditional",
    "real",
    "uai",
    "uai2014",
    "uai2022",
    "scale",
    "clusters",
    "elimination",
    "exact",
    "answers",
    "dense",
    "sparse",
    "lattices",
    "ranks",
    "scaling",
    "observables",
    "learning",
    "repair",
    "imputation",
    "structure",
    "ground_states",
    "residuals",
    "max_cut",
    "populations",
    "ladders",
]

GPU = [
    "gpu",
    "gpu_defaults",
    "gpu_exact",
    "gpu_ladders",
    "gpu_colors",
    "gpu_learning",
    "gpu_points",
    "gpu_lattices",
]  # require a GPU
BRIDGES = ["boltzmann"]  # require PyTorch and dwave-pytorch-plugin
ALL = [*BENCHMARKS, *GPU, *BRIDGES]

for name in sys.argv[1:] or BENCHMARKS:
    if name not in ALL:
        sys.exit(f"unknown benchmark {name!r}; there are: {', '.join(ALL)}")
    print(name, flush=True)
    importlib.import_module(f"benchmarks.{name}").main()
