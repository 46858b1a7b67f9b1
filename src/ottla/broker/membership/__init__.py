"""Several nodes: which partitions this one has, and how they come and go."""
