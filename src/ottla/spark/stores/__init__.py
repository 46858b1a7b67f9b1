"""Redis streams and `.ss` files as Spark sources."""
