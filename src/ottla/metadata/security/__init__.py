"""ACLs, users and quotas: values, what is valid, and filters."""
