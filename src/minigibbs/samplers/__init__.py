"""One algorithm a file, and the registry that the command line and the tests read."""

from minigibbs.samplers.base import Sampler
from minigibbs.samplers.gibbs import Gibbs

SAMPLERS: dict[str, type[Sampler]] = {sampler.name: sampler for sampler in (Gibbs,)}

__all__ = ["SAMPLERS", "Gibbs", "Sampler"]
