"""The transaction coordinator: a pure machine over `__transaction_state`."""
