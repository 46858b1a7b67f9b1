"""The Admin client."""
