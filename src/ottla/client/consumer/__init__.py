"""The Consumer: a member of a consumer group, in either of Kafka's protocols."""
