"""Consumer groups: offsets, the classic protocol and KIP-848, folded from `__consumer_offsets`."""
