"""Tests of the contract of ensembles, for every layout on every device."""
