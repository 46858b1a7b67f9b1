"""The node as a whole: its services, jobs, peers and metrics, and the process it runs in."""
