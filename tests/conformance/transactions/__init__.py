"""A package, so that Apache Kafka is started once for all of it."""
