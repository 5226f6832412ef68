"""What every sampler runs on: compiled updates by type of data, chains, the driver of tasks."""
