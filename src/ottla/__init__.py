"""Ottla: Kafka's little sister, a Kafka-compatible broker, queues and pipelines in Python."""

__version__ = "0.1.0.dev0"
