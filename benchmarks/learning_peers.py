"""adabmDCA and rbms on the same data: run by `learning` with a Python that has them.

Arrays are read from FOLDER/in.npz and written to FOLDER/out.npz; numbers are printed as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

SWEEPS = 10


def potts(given, folder: Path) -> dict:
    """Train adabmDCA on a full graph, ten epochs at a time, to the Pearson correlation.

    Returns the weights after every ten epochs, with the training time so far.
    """
    import torch
    from adabmDCA.sampling import get_sampler, prepare_training_sampler
    from adabmDCA.stats import (
        get_correlation_two_points,
        get_freq_single_point,
        get_freq_two_points,
    )
    from adabmDCA.training import train_graph
    from adabmDCA.utils import init_chains, init_parameters

    torch.manual_seed(0)
    device = torch.device("cuda" if given["cuda"] else "cpu")
    wait = torch.cuda.synchronize if given["cuda"] else lambda: None
    rows = torch.from_numpy(given["rows"].astype(np.int64)).to(device)
    data = torch.nn.functional.one_hot(rows, int(given["states"])).float()
    _, sites, states = data.shape
    single, pairs = get_freq_single_point(data), get_freq_two_points(data)
    params, count = init_parameters(single), int(given["chains"])
    chains = init_chains(count, sites, states, device=device, dtype=single.dtype, fi=single)
    mask = torch.ones(sites, states, sites, states, dtype=torch.bool, device=device)
    mask[torch.arange(sites), :, torch.arange(sites), :] = False
    target = float(given["pearson"])

    def copied():
        return chains.clone(), {name: value.clone() for name, value in params.items()}

    def sampling_seconds(sampler):
        for _ in range(3):  # compiled and profiled first; the last one counts
            wait()
            begun = time.perf_counter()
            sampler(*copied(), SWEEPS)
            wait()
        return time.perf_counter() - begun

    # Its own training uses the first one; this benchmark uses the faster of the two.
    samplers = [prepare_training_sampler("gibbs", device), get_sampler("gibbs")]
    sampling, _, sampler = min((sampling_seconds(one), k, one) for k, one in enumerate(samplers))

    def train(chains, params, weights, steps):
        return train_graph(
            sampler=sampler,
            chains=chains,
            mask=mask,
            fi_target=single,
            fij_target=pairs,
            params=params,
            nsweeps=SWEEPS,
            lr=0.01,
            max_epochs=steps,
            target_pearson=target,
            log_weights=weights,
        )

    train(*copied(), None, 2)  # compiles
    weights, steps, pearson, seconds, kept = None, 0, 0.0, 0.0, []
    while pearson < target and seconds < float(given["patience"]):
        begun = time.perf_counter()
        chains, params, weights, history = train(chains, params, weights, 10)
        steps += len(history["Epochs"])
        model = get_freq_single_point(chains), get_freq_two_points(chains)
        pearson, _ = get_correlation_two_points(fi=single, fij=pairs, pi=model[0], pij=model[1])
        wait()
        seconds += time.perf_counter() - begun
        kept.append((seconds, params["bias"].clone(), params["coupling_matrix"].clone()))
    i, j = np.triu_indices(sites, 1)
    times, fields, tables = zip(*kept, strict=True)
    np.savez(
        folder / "out.npz",
        times=np.array(times),
        J=np.stack([one.cpu().numpy()[i, :, j, :] for one in tables]),
        h=np.stack([one.cpu().numpy() for one in fields]),
    )
    return {
        "seconds": seconds,
        "steps": steps,
        "pearson": pearson,
        "arrived": pearson >= target,
        "rate": SWEEPS * sites * count / sampling,
        "sampler": getattr(sampler, "__name__", type(sampler).__name__),
    }


def machine(given, folder: Path) -> dict:
    """Measure gradient steps per second of rbms, PCD-10."""
    import torch
    from rbms.bernoulli_bernoulli.classes import BBRBM
    from rbms.training.pcd import fit_batch_pcd

    torch.manual_seed(0)
    data = torch.from_numpy(given["images"].astype(np.float32))
    hidden, chains, steps = (int(given[name]) for name in ("hidden", "chains", "steps"))
    visible = data.shape[1]
    params = BBRBM(0.01 * torch.randn(visible, hidden), torch.zeros(visible), torch.zeros(hidden))
    for one in params.parameters():
        one.grad = torch.zeros_like(one)
    optimizer = torch.optim.SGD(params.parameters(), lr=0.01)
    states, begun = params.init_chains(chains), 0.0
    for step in range(steps + 2):
        if step == 2:
            begun = time.perf_counter()
        batch = data[torch.randint(len(data), (chains,))], torch.ones(chains, 1)
        states, _ = fit_batch_pcd(batch, states, params, SWEEPS, 1.0)
        optimizer.step()
    np.savez(folder / "out.npz")
    return {"rate": steps / (time.perf_counter() - begun)}


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    print(
        json.dumps(
            {"potts": potts, "machine": machine}[sys.argv[1]](np.load(folder / "in.npz"), folder)
        )
    )
