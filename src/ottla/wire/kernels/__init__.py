"""Compiled loops over records: the only code that looks at records one by one.

Rules:

- Kernels see raw addresses and trust nothing that lies behind them: every length is held against
  the bytes that are really there before it is followed. They never raise; they return a status
  that `validate.record_error` turns into an error of `ottla.wire.errors`.
- They run without the GIL and compile on first use. Machine code is cached beside the source; if
  that place cannot be written, in the user's cache directory; if neither can, each process
  compiles for itself. NUMBA_CACHE_DIR names another place, e.g. one that an image ships filled.
  A cached kernel is told stale by its own file only: after a change to `jit`, empty the cache.
- This package needs the `arrow` extra and is imported by nothing that can do without it.
"""
