"""Committed offsets of groups: their rules, requests, and those of open transactions."""
