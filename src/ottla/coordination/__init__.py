"""The event-sourced coordinators: folds over Kafka's internal topics.

Each coordinator is a pure machine: requests and ticks go in with a time, records and replies come
out. `runtime` is the only module here that knows a log or an event loop.
"""
