"""Topics as a Spark sink."""
