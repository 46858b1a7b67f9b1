"""Who comes in, and how: listeners, the lobby, TLS, authentication, rights."""
