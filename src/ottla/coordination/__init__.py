"""The event-sourced coordinators: folds over Kafka's internal topics.

Each coordinator is a pure machine: requests and ticks go in with a time, records and replies come
out. Only `runtime` uses a log and an event loop.
"""
