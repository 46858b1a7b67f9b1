"""The state of the cluster: an immutable image, changes that produce the next one, and a store."""
