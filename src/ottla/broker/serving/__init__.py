"""Requests in, answers out: connections, frames, the table of APIs, memory of requests."""
