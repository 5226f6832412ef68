"""Gibbs sweeps as a JAX kernel in the style of blackjax."""

from minigibbs.interop.jax import GraphKernel, GraphState, graph_kernel

__all__ = ["GraphKernel", "GraphState", "graph_kernel"]
