"""Share groups (KIP-932): who is in a group, and how far each share-partition has come."""
