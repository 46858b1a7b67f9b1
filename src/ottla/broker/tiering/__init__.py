"""Tiered storage on this node: copies, expiry, reads of remote segments (KIP-405)."""
