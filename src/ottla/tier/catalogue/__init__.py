"""Which remote segments exist: events, their fold, the metadata topic they are kept in."""
