"""The broker's share-state persister: crabka-broker 0.3.6, `SharePersister`.

What of the document is Rust's business: the struct, its `Debug` output and constructor, and the
shape of its error enum. TLS between brokers is not part of Ottla yet.
"""
