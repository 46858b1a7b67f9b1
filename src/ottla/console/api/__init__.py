"""The same values as JSON: `/api/v1`."""
