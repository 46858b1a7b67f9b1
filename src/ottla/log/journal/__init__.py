"""A journal for acknowledgements: one durable write for the new batches of all partitions.

`slots` is the format, `writer` decides what to write where and when a file can be reused, `files`
handles the files, `replay` appends after a crash the batches that the logs have lost.
"""
