"""Testing tools for users: a broker in the test process, and pytest fixtures around it."""
