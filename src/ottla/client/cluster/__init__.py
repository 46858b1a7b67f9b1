"""Connections to brokers, and the cluster as one thing to send requests to."""
