"""Settings of learning: checked, and stored in checkpoints."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from minigibbs.errors import LearnError

METHODS = ("pcd", "cd", "pseudo", "exact")
SAMPLED = ("pcd", "cd")  # methods with a noisy gradient
BACKENDS = ("cpu", "cuda")  # devices of the model's chains
LOOK = 10  # steps between two checks of the moments
_MOST = {"chains": 2**31 - 1, "sweeps": 1_000_000, "steps": 2**53}  # limits of a fit, or of a step
_OPEN = ("batch", "error", "pearson")  # settings that may be None
_LEAST = {"chains": 1, "sweeps": 1, "steps": 0, "batch": 1, "patience": 1, "seed": 0}


@dataclass(frozen=True)
class Settings:
    """Settings of a fit; see `mg.learn`."""

    method: str
    chains: int
    sweeps: int
    steps: int
    rate: float
    decay: float
    optimizer: str
    batch: int | None
    error: float | None
    pearson: float | None
    patience: int
    seed: int
    backend: str = "cpu"
    reweight: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise LearnError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")
        if self.backend not in BACKENDS:
            raise LearnError(f"backend must be one of {', '.join(BACKENDS)}; got {self.backend!r}")
        for name, least in _LEAST.items():
            count = getattr(self, name)
            whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
            if not (whole and count >= least) and not (count is None and name in _OPEN):
                raise LearnError(f"{name} must be an integer of at least {least}, got {count!r}")
            if name in _MOST and count > _MOST[name]:
                raise LearnError(f"{name} must be at most {_MOST[name]:,}, got {count!r}")
        for name in ("rate", "decay", "error", "pearson"):
            number = getattr(self, name)
            real = isinstance(number, int | float | np.number) and not isinstance(number, bool)
            if not (real and 0 < number < np.inf) and not (number is None and name in _OPEN):
                public = "tol" if name == "error" else name
                raise LearnError(f"{public} must be a number above 0, got {number!r}")
        if type(self.reweight) is not bool:
            raise LearnError(f"reweight must be True or False, got {self.reweight!r}")
        if self.reweight and (self.method != "pcd" or self.backend != "cpu"):
            raise LearnError('reweight=True needs method="pcd" and backend="cpu"')
        if self.pearson is not None and self.pearson > 1:
            raise LearnError(f"pearson must be a correlation of at most 1, got {self.pearson!r}")

    def encode(self) -> dict[str, Any]:
        """Encode the settings as JSON."""
        return asdict(self) | {"seed": str(self.seed)}

    @classmethod
    def decode(cls, header: dict[str, Any]) -> Settings:
        """Decode settings from JSON, with the checks of `mg.learn`."""
        if not isinstance(header, dict):
            raise ValueError("settings: expected names and values")
        header = {"backend": "cpu", "reweight": False} | header
        given: dict[str, Any] = {field.name: header[field.name] for field in fields(cls)}
        return cls(**given | {"seed": int(given["seed"])})
