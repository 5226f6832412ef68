"""Parallel tempering: one algorithm, and two layouts of its replicas."""

from minigibbs.samplers.tempering.sampler import Tempering

__all__ = ["Tempering"]
