"""Chromatic scans: all variables of a color at a time, vectorized across chains.

A file of arrays and a file of tiles per layout; `samplers.registry` chooses among them.
"""
