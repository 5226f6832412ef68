"""One file per algorithm, and the registry that the command line and the tests read."""

from minigibbs.samplers.base import Sampler
from minigibbs.samplers.block_gibbs.sampler import BlockGibbs
from minigibbs.samplers.double_min import DoubleMinGibbs
from minigibbs.samplers.estimators import (
    CustomEstimator,
    Estimator,
    ExactEstimator,
    PoissonEstimator,
    SubsetEstimator,
)
from minigibbs.samplers.exact import ExactSampler
from minigibbs.samplers.gibbs.sampler import Gibbs
from minigibbs.samplers.local import LocalMinibatchGibbs
from minigibbs.samplers.mgpmh import MGPMH
from minigibbs.samplers.min_gibbs import MinGibbs
from minigibbs.samplers.poisson_gibbs.sampler import PoissonGibbs
from minigibbs.samplers.poisson_mh import PoissonMH
from minigibbs.samplers.swendsen_wang import SwendsenWang
from minigibbs.samplers.tempering import Tempering
from minigibbs.samplers.tuna_mh import TunaMH

# These update one variable at a time.
SINGLE_SITE: dict[str, type[Sampler]] = {
    sampler.name: sampler
    for sampler in (
        PoissonGibbs,
        Gibbs,
        MinGibbs,
        LocalMinibatchGibbs,
        MGPMH,
        DoubleMinGibbs,
        PoissonMH,
        TunaMH,
    )
}
# These update all variables at once.
SWEEPING: dict[str, type[Sampler]] = {
    sampler.name: sampler for sampler in (Tempering, BlockGibbs, SwendsenWang, ExactSampler)
}
SAMPLERS = SINGLE_SITE | SWEEPING

__all__ = [
    "MGPMH",
    "SAMPLERS",
    "SINGLE_SITE",
    "SWEEPING",
    "BlockGibbs",
    "CustomEstimator",
    "DoubleMinGibbs",
    "Estimator",
    "ExactEstimator",
    "ExactSampler",
    "Gibbs",
    "LocalMinibatchGibbs",
    "MinGibbs",
    "PoissonEstimator",
    "PoissonGibbs",
    "PoissonMH",
    "Sampler",
    "SubsetEstimator",
    "SwendsenWang",
    "Tempering",
    "TunaMH",
]
