"""A share group as a Spark source."""
