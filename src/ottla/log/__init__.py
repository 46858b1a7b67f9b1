"""One partition's log on disk, in Kafka's own directory and file formats.

`PartitionLog` is the way in; `DataDirectory` holds many of them. Nothing here knows of requests,
sockets or event loops: every call is synchronous, and the docstring of a call that may block says
so, because the broker then runs it in a worker thread.
"""
