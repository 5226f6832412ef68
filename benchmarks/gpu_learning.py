"""Learning with chains on a GPU: the Potts family of `learning`, 10,000 chains.

It is compared with adabmDCA and its Triton kernels; `learning` explains where it is searched for.
"""

from __future__ import annotations

import warnings

from benchmarks.learning import NOTE, potts
from benchmarks.report import Report

CHAINS = 10_000
PATIENCE = 150  # time limit of adabmDCA in seconds


def main() -> None:
    report = Report("gpu_learning", "Learning weights on a GPU")
    warnings.simplefilter("ignore")  # pairs of values that no row has: the same for both
    potts(report, CHAINS, "cuda", PATIENCE)
    report.notes.append(NOTE)
    report.write()


if __name__ == "__main__":
    main()
