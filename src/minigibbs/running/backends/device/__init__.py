"""All that knows numba-cuda. No module outside this package imports `numba.cuda`.

* `access`: is there a device, and its memory;
* `shapes`: launch shapes within the limits of a device;
* `launch`: launches that are repeated;
* `stored`: compiled kernels on disk;
* `toolchain`: the compiler and its options; importing it needs numba-cuda;
* `words`: instructions that Numba has no functions for.
"""
