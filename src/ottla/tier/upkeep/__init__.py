"""Copying, expiring, deleting and repairing remote segments."""
