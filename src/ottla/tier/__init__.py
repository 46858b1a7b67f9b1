"""Tiered storage: old segments in an object store, and the catalogue of them.

Decisions (what to copy, what to delete, which bytes to read) are pure functions and values; the
catalogue is a fold over a log of events; only the stores, the event log of a cluster and the index
cache do I/O.
"""
