"""Remote segments as a Spark source."""
