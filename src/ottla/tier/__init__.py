"""Tiered storage: old segments in object storage, and the catalogue that says where they are.

Decisions (what to copy, what may go, which bytes answer a read) are pure functions and values; the
catalogue is a fold over a log of events; only the stores, the event log of a cluster and the index
cache do I/O.
"""
