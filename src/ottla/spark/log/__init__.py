"""The log of topics as a Spark source."""
