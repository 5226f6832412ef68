"""adabmDCA and rbms on the same data: run by `learning` with a Python that has them.

Arrays come in FOLDER/in.npz and leave in FOLDER/out.npz; numbers are printed as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

SWEEPS = 10


def potts(given, folder: Path) -> dict:
    """Train adabmDCA on a full graph, ten epochs at a time, to the Pearson correlation."""
    import torch
    from adabmDCA.sampling import get_sampler
    from adabmDCA.stats import (
        get_correlation_two_points,
        get_freq_single_point,
        get_freq_two_points,
    )
    from adabmDCA.training import train_graph
    from adabmDCA.utils import init_chains, init_parameters

    torch.manual_seed(0)
    device = torch.device("cuda" if given["cuda"] else "cpu")
    rows = torch.from_numpy(given["rows"].astype(np.int64)).to(device)
    data = torch.nn.functional.one_hot(rows).float()
    _, sites, states = data.shape
    single, pairs = get_freq_single_point(data), get_freq_two_points(data)
    params = init_parameters(single)
    chains = init_chains(
        int(given["chains"]), sites, states, device=device, dtype=single.dtype, fi=single
    )
    mask = torch.ones(sites, states, sites, states, dtype=torch.bool, device=device)
    mask[torch.arange(sites), :, torch.arange(sites), :] = False
    weights, steps, pearson, begun = None, 0, 0.0, time.perf_counter()
    target = float(given["pearson"])
    while pearson < target and time.perf_counter() - begun < float(given["patience"]):
        chains, params, weights, _ = train_graph(
            sampler=get_sampler("gibbs"),
            chains=chains,
            mask=mask,
            fi_target=single,
            fij_target=pairs,
            params=params,
            nsweeps=SWEEPS,
            lr=0.01,
            max_epochs=10,
            target_pearson=target,
            log_weights=weights,
        )
        steps += 10
        model = get_freq_single_point(chains), get_freq_two_points(chains)
        pearson, _ = get_correlation_two_points(fi=single, fij=pairs, pi=model[0], pij=model[1])
    seconds = time.perf_counter() - begun
    i, j = np.triu_indices(sites, 1)
    tables = params["coupling_matrix"].cpu().numpy()[i, :, j, :]
    np.savez(folder / "out.npz", J=tables, h=params["bias"].cpu().numpy())
    return {"seconds": seconds, "steps": steps, "pearson": pearson}


def machine(given, folder: Path) -> dict:
    """Gradient steps a second of rbms, PCD-10."""
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
    optimiser = torch.optim.SGD(params.parameters(), lr=0.01)
    states, begun = params.init_chains(chains), 0.0
    for step in range(steps + 2):
        if step == 2:
            begun = time.perf_counter()
        batch = data[torch.randint(len(data), (chains,))], torch.ones(chains, 1)
        states, _ = fit_batch_pcd(batch, states, params, SWEEPS, 1.0)
        optimiser.step()
    np.savez(folder / "out.npz")
    return {"rate": steps / (time.perf_counter() - begun)}


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    print(
        json.dumps(
            {"potts": potts, "machine": machine}[sys.argv[1]](np.load(folder / "in.npz"), folder)
        )
    )
