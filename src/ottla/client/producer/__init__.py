"""The Producer."""
