"""Backends: one file per device that runs chains, one protocol for all, and their registry."""

from minigibbs.running.backends import cpu, cuda, mpi
from minigibbs.running.backends.base import Backend

BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (cpu.BACKEND, cuda.BACKEND, mpi.BACKEND)
}

__all__ = ["BACKENDS", "Backend"]
