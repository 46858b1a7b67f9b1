"""A journal for acknowledgements: one durable write for the new batches of all partitions.

`slots` is the format, `writer` decides what is written where and when a file is free again, `files`
are the files, `replay` brings back after a crash what the logs themselves have lost.
"""
