"""The coordinators of this node: groups and transactions, and how they reach their logs."""
