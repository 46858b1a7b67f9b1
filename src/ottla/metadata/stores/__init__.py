"""Metadata stores: the interface, and SQLite."""
