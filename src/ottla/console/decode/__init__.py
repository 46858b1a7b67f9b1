"""Bytes of records as something to read: bounded decoders, and masks before all else."""
