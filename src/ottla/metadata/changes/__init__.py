"""The changes a cluster can undergo: topics, nodes, configurations; and `apply`."""
