"""Chromatic scans: all variables of a color at a time, several chains side by side.

A file of arrays and a file of tiles per layout; `samplers.registry` chooses among them.
"""
