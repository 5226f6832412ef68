"""PyTorch: moments of graphical models as differentiable functions of tensors."""

from minigibbs.interop.torch import Expectations, Moments, expectations
from minigibbs.interop.torch_crf import DenseCRF

__all__ = ["DenseCRF", "Expectations", "Moments", "expectations"]
