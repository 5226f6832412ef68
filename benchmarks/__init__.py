"""Benchmarks: `make bench` runs them all; `python -m benchmarks NAME ...` runs some."""
