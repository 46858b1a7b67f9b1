"""The console: what a running cluster looks like, for pages, JSON and `ottla top`.

Pure functions (`views`) turn what the cluster answered (`snapshot`) into frozen dataclasses; every
face shows the same values. It speaks Kafka's protocol and nothing else, so it works with Apache
Kafka, too.
"""
