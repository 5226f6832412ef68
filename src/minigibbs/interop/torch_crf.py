"""A dense conditional random field as a PyTorch module, from unaries to marginals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from minigibbs.errors import GraphError
from minigibbs.graph.checks import as_array
from minigibbs.graph.factors import Points, Unary
from minigibbs.graph.graph import FactorGraph
from minigibbs.interop.common import require_positive
from minigibbs.interop.torch import first_only
from minigibbs.interop.torch_solvers import spread
from minigibbs.learning.chains import seed_of
from minigibbs.running.api import sample
from minigibbs.running.request import Record, check_counts, entropy_of
from minigibbs.samplers.registry import CPU, CUDA
from minigibbs.system.boundary import checked

__all__ = ["DenseCRF"]


@checked(GraphError)
class DenseCRF(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Marginals of a fully connected conditional random field, by sampling.

    The log-potential of labels x has two parts: the sum of unary[i, x_i] over points i, and the sum
    of weight_k * k(f_i, f_j) over kernels k and pairs of points with the same label. The gradients
    with respect to the unaries and the kernel weights are covariances. They are estimated from the
    same states as the marginals.

    Parameters
    ----------
    weights : sequence of floats
        The initial weight of each kernel; `weight` is the parameter of the module.
    kernel : str, default "gaussian"
        As in `mg.Points`.
    normalize : bool, default True
        Whether to normalize each kernel symmetrically, as in `mg.models.dense_crf`.
    chains : int, default 16
        Number of independent chains. Their spread gives the errors.
    draws : int, default 16
        Number of recorded states per chain.
    sweeps : int, default 2
        Sweeps between the recorded states.
    warmup : int, default 50
        Sweeps before the first recorded state.
    seed : int or None, default None
        Seed of the first call; later calls use seeds derived from it.

    Attributes
    ----------
    error : tensor or None
        Standard errors of the marginals of the latest call.
    gradient_error : tuple of tensors or None
        After `backward`, standard errors of the gradients of unaries and weights. The images of a
        batch are independent, so the errors of their contributions to the weights' gradient add in
        quadrature.

    Notes
    -----
    The gradient of the kernel weights sums all pairs of points that the kernels couple, for every
    recorded state. With wide kernels these are almost all pairs. `crf.weight.requires_grad_(False)`
    fixes the weights, and leaves that gradient out.

    Images of a batch are sampled one after the other. For tensors on a GPU the chains run there;
    states are copied to the host.

    Examples
    --------
    >>> import torch
    >>> from minigibbs.torch import DenseCRF
    >>> places = torch.arange(12.0).reshape(12, 1) / 2
    >>> unary = torch.zeros(12, 3, requires_grad=True)
    >>> crf = DenseCRF([0.5], seed=1)
    >>> marginals = crf(unary, [places])
    >>> marginals.shape, bool(torch.allclose(marginals.sum(1), torch.ones(12)))
    (torch.Size([12, 3]), True)
    """

    def __init__(
        self,
        weights: Sequence[float],
        *,
        kernel: str = "gaussian",
        normalize: bool = True,
        chains: int = 16,
        draws: int = 16,
        sweeps: int = 2,
        warmup: int = 50,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        check_counts(chains=chains)
        Points([[0.0], [1.0]], kernel)  # refuses an unknown kernel
        require_positive(sweeps=sweeps, draws=draws, warmup=warmup)
        self.weight = torch.nn.Parameter(torch.tensor(list(map(float, weights))))
        self.kernel, self.normalize = kernel, normalize
        self.chains, self.draws, self.sweeps, self.warmup = chains, draws, sweeps, warmup
        self.error: torch.Tensor | None = None
        self._steep: dict[int, list[torch.Tensor]] = {}  # errors of gradients, by image
        self._batched = False
        self._seed, self._calls = entropy_of(seed), 0

    @property
    def gradient_error(self) -> tuple[torch.Tensor, ...] | None:
        """Standard errors of the gradients of unaries and weights."""
        if not self._steep:
            return None
        images = [self._steep[k] for k in sorted(self._steep)]
        if not self._batched:
            return tuple(images[0])
        unary, weight = (torch.stack(part) for part in zip(*images, strict=True))
        return unary, (weight**2).sum(dim=0).sqrt()

    def forward(self, unary: Any, features: Sequence[Any]) -> Any:
        """Estimate the marginals by sampling.

        Parameters
        ----------
        unary : tensor
            [point, label] log-potentials, or [image, point, label] for a batch.
        features : sequence of arrays or tensors
            For each kernel [point, dimension] features, in units of the width of the kernel. In a
            batch they may have an axis of images before these; otherwise all images share them.
            They must not require a gradient, because none reaches them.

        Returns
        -------
        tensor
            Marginal probabilities, in the shape of `unary`.
        """
        if not isinstance(unary, torch.Tensor) or unary.ndim not in (2, 3):
            raise GraphError(
                "unary must be a tensor of shape [point, label] or [image, point, label]"
            )
        if 0 in unary.shape[-2:]:
            raise GraphError(f"unary must hold a point and a label, got shape {tuple(unary.shape)}")
        if not unary.is_floating_point():
            raise GraphError(f"unary must be a tensor of a floating-point type, got {unary.dtype}")
        if len(features) != len(self.weight):
            raise GraphError(
                f"features must hold one array for each of {len(self.weight)} kernels, got "
                f"{len(features)}"
            )
        self._batched, self._steep = unary.ndim == 3, {}
        images = unary if self._batched else unary[None]
        given = [self._given(one, kernel) for kernel, one in enumerate(features)]
        weight, found = self.weight.to(unary), []
        errors: list[torch.Tensor] = []
        for k, image in enumerate(images):
            rows = [self._rows(one, kernel, k, images) for kernel, one in enumerate(given)]
            found.append(_Marginals.apply(image, weight, self, rows, k, errors))
        if not found:  # a batch of no images
            self.error = torch.zeros_like(unary)
            return unary.clone()
        self.error = torch.stack(errors) if self._batched else errors[0]
        return torch.stack(found) if self._batched else found[0]

    def _given(self, features: Any, kernel: int) -> NDArray[Any]:
        """Convert the features for one kernel to NumPy."""
        what = f"features of kernel {kernel}"
        if getattr(features, "requires_grad", False) and torch.is_grad_enabled():
            raise GraphError(
                f"{what} require a gradient, which is not computed: use features.detach()"
            )
        return as_array(features, "iufb", f"{what} must hold real numbers")

    def _rows(self, given: NDArray[Any], kernel: int, image: int, images: Any) -> NDArray[Any]:
        """Return the features of one image for one kernel."""
        own = given.ndim == 3 and self._batched and len(given) == len(images)
        rows: NDArray[Any] = given[image] if own else given
        if rows.ndim != 2 or len(rows) != images.shape[1]:
            raise GraphError(
                f"features of kernel {kernel} must have shape ({images.shape[1]}, dimensions), or "
                f"that for each image of a batch; got {given.shape}"
            )
        return rows

    def groups(self, rows: list[NDArray[Any]], weights: NDArray[np.float64]) -> list[Points]:
        """Return the couplings at some weights."""
        norms = "sums" if self.normalize else None
        return [
            Points(one, self.kernel, float(weight), norms=norms)
            for one, weight in zip(rows, weights, strict=True)
        ]

    def states(self, graph: FactorGraph, backend: str) -> NDArray[Any]:
        """Return sampled states as [chain, draw, point]."""
        self._calls += 1
        run = sample(
            graph,
            sweeps=self.draws * self.sweeps,
            warmup=self.warmup,
            chains=self.chains,
            seed=seed_of((self._seed, self._calls)),
            start="random",  # "dispersed" sums all pairs of points
            record=Record("draws", thin=self.sweeps),
            backend=backend,
            progress=False,
        )
        if run.interrupted:
            raise KeyboardInterrupt
        assert run.draws is not None
        return run.draws


class _Marginals(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Marginals of sampled states; the gradient is a covariance over these states."""

    @staticmethod
    def forward(
        ctx: Any, unary: Any, weight: Any, crf: Any, rows: Any, image: int, errors: Any
    ) -> Any:
        """Sample states, and count labels."""
        fields = unary.detach().cpu().to(torch.float64).numpy()
        couplings = crf.groups(rows, weight.detach().cpu().to(torch.float64).numpy())
        points, labels = fields.shape
        graph = FactorGraph([labels] * points, [Unary(range(points), fields), *couplings])
        ctx.states = crf.states(graph, CUDA if unary.is_cuda else CPU)
        ctx.crf, ctx.rows, ctx.labels, ctx.image = crf, rows, labels, image
        ctx.save_for_backward(unary, weight)
        each = np.stack([_shares(some, labels, np.ones(len(some))) for some in ctx.states])
        errors.append(spread(torch.as_tensor(each)).to(unary))
        ctx.mean = each.mean(axis=0)
        return torch.as_tensor(ctx.mean).to(unary)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Multiply by the covariance of labels with labels, and with log-potentials of kernels."""
        vector = gradient.detach().cpu().to(torch.float64).numpy()
        states, crf = ctx.states, ctx.crf
        along = vector[np.arange(states.shape[2]), states].sum(axis=2)  # [chain, draw]
        along -= along.mean()
        fields, weights = [], []
        table = np.zeros((*along.shape, len(ctx.rows)))  # log-potentials of kernels of weight 1
        if ctx.needs_input_grad[1]:
            for kernel, one in enumerate(crf.groups(ctx.rows, np.ones(len(ctx.rows)))):
                energies = one.energies(states.reshape(-1, states.shape[2]))
                table[..., kernel] = (energies - energies.mean()).reshape(along.shape)
        for chain, weight in enumerate(along):
            shares = _shares(states[chain], ctx.labels, weight)
            fields.append(shares - weight.mean() * ctx.mean)
            weights.append((weight[:, None] * table[chain]).mean(axis=0))
        correction = along.size / max(along.size - 1, 1)
        found = [np.stack(fields) * correction, np.stack(weights) * correction]
        crf._steep[ctx.image] = [spread(torch.as_tensor(each)).to(gradient) for each in found]
        inputs = (*ctx.saved_tensors, gradient)
        unary, weight = (
            first_only(torch.as_tensor(each.mean(axis=0)).to(gradient), *inputs) for each in found
        )
        return unary, weight, None, None, None, None


def _shares(states: NDArray[Any], labels: int, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [point, label] the mean of weight * [the point has the label] over states."""
    places = states.astype(np.int64) + labels * np.arange(states.shape[1])
    times = np.repeat(weight, states.shape[1])
    sums = np.bincount(places.ravel(), times, minlength=labels * states.shape[1])
    shares: NDArray[np.float64] = sums.reshape(-1, labels) / len(states)
    return shares
