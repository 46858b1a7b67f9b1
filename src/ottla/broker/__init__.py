"""The running node: connections, dispatch, one handler file per API family, background jobs."""
