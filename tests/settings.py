"""How each registered sampler enters the tests of law: registering a sampler enrols it here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import minigibbs as mg
from minigibbs.samplers import SAMPLERS, Sampler


def nothing(graph, states, seed):
    """For samplers that carry nothing."""
    return None


@dataclass(frozen=True)
class Setting:
    sampler: Sampler
    carry: Callable[..., Any] = nothing  # what chains at stationarity carry, given their states
    mixing_sweeps: int = 60


SETTINGS = {
    "gibbs": Setting(mg.Gibbs()),
    "gibbs-textbook": Setting(mg.Gibbs(textbook=True)),
}

missing = SAMPLERS.keys() - {setting.sampler.name for setting in SETTINGS.values()}
assert not missing, f"samplers without a test of their law: {missing}"
