"""Compiled loops over records.

Rules:

- Kernels get raw addresses and do not trust the data: every length is checked against the available
  bytes before it is used. They never raise; they return a status that `validate.record_error`
  converts to an error of `ottla.wire.errors`.
- They run without the GIL and compile on first use. Machine code is cached beside the source; if
  that place cannot be written, in the user's cache directory; if neither can, each process compiles
  for itself. NUMBA_CACHE_DIR names another directory, such as a filled one in a container image.
  The cache notices changes of a kernel's own file only: after a change to `jit`, empty the cache.
- This package needs the `arrow` extra; modules import it only if they need it.
"""
