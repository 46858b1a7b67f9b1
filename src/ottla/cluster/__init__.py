"""Decisions about several nodes: supervision, directories, hand-over, placement, balance. Pure."""
