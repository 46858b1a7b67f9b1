"""Bytes to values and back: frames, messages, record batches, columns.

This package uses no sockets, files or brokers. Its modules are imported one by one, so that a
process that only frames messages loads nothing else; `kernels` and `arrow` need the `arrow` extra.
"""
