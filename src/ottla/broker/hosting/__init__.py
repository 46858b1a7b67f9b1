"""The logs of this node: opening, writing, syncing, compacting and closing them."""
