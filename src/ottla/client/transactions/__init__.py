"""Transactions of a Producer."""
