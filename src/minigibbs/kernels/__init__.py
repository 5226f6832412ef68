"""Device-safe compiled pieces: no allocation, no exceptions, no strings, scratch passed in.

Kernels know nothing of graphs or samplers; they read the flat arrays of `kernels.layout`.
"""
