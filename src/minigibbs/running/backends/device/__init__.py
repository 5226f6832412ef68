"""All code that depends on numba-cuda. No module outside this package imports `numba.cuda`.

* `access`: whether there is a device, and its memory;
* `shapes`: launch shapes within the limits of a device;
* `launch`: fast repeated launches;
* `stored`: compiled kernels on disk;
* `toolchain`: the compiler and its options; importing it needs numba-cuda;
* `words`: instructions for which Numba has no functions.
"""
