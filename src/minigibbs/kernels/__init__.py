"""Compiled functions for CPU and GPU: no allocation, no exceptions, no strings, scratch passed in.

Kernels do not depend on graphs or samplers; they read the flat arrays of `kernels.layout`.
"""
