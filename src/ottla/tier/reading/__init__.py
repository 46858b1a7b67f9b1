"""Reads of remote segments: indexes, caches, batches, times."""
