"""Share groups on this node: deliveries, their durable state, dead letters (KIP-932)."""
