"""Talking to a cluster: connections, routing, and the clients on top of them.

`exchange` is the protocol without sockets, `connection` puts it on one, `cluster` finds the right
broker and the right version for a request, `admin` is made of such requests. This room imports
`ottla.wire` and nothing else of Ottla.
"""
