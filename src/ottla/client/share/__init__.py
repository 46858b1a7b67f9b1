"""The ShareConsumer and share_worker: queues (KIP-932)."""
