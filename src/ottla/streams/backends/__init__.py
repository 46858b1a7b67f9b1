"""The stores, one module each, imported when a URL needs it."""
