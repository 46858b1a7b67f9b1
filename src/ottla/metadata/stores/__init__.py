"""Where the image is kept: the store's interface, and SQLite."""
