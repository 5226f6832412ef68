"""Chromatic scans: all variables of a color are updated at a time, vectorized across chains.

Each layout has a file of arrays and a file of tiles; `samplers.registry` chooses the layout.
"""
