"""Running means, variances and batch sums of observables, in arrays of a fixed size."""

from __future__ import annotations

from minigibbs.kernels.jit import entry

BATCHES = 128  # number of stored batch sums; when all are full, neighbors are added


def batch_size(count: int) -> int:
    """Return the records per batch after `count` records: the least sufficient power of 2."""
    size = 1
    while count >= size * BATCHES:
        size *= 2
    return size


@entry
def accumulate(values, count, moments, sums):
    """Add records, one per row, to running moments and batch sums.

    `count` [1] is the number of earlier records; `moments` [2, number] the mean and the sum of
    squared deviations from it (Welford); `sums` [batch, number] sums of consecutive records.
    Results depend only on the records and their order, not on their division into calls.
    """
    batches, width = sums.shape
    size = 1
    while count[0] >= size * batches:
        size *= 2
    for k in range(len(values)):
        place = count[0] // size
        count[0] += 1
        for j in range(width):
            value = values[k, j]
            change = value - moments[0, j]
            moments[0, j] += change / count[0]
            moments[1, j] += change * (value - moments[0, j])
            sums[place, j] += value
        if count[0] == size * batches:
            for j in range(width):
                for place in range(batches // 2):
                    sums[place, j] = sums[2 * place, j] + sums[2 * place + 1, j]
                for place in range(batches // 2, batches):
                    sums[place, j] = 0.0
            size *= 2
