"""One small HTTP server, for metrics and for what comes after them.

`messages` are requests, answers and limits; `routes` says which function answers; `exchange` is one
side of a connection without a socket, over h11; `server` puts sockets to it; `callers` tells who
asks. Loaded only where an HTTP listener is configured.
"""
