"""The Reader: partitions of a topic as records or Arrow batches."""
