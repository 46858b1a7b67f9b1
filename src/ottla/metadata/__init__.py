"""What the cluster is: an immutable image, the changes that make the next one, and their store."""
