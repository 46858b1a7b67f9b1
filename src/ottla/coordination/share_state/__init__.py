"""The share coordinator: durable state of share-partitions on `__share_group_state`."""
