"""What chains run on: one file a backend, all behind one protocol, and their registry."""

from minigibbs.running.backends import cpu, cuda, mpi
from minigibbs.running.backends.base import Backend

BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (cpu.BACKEND, cuda.BACKEND, mpi.BACKEND)
}

__all__ = ["BACKENDS", "Backend"]
