"""The topic-backed metadata manager of tiered storage: crabka-remote-storage-topic 0.3.6.

What of the document is Rust's business: the runtime handle that `start` takes, `Arc` clones (here
managers share one log object), and the crate's modules and re-exports. TLS and SASL of the internal
clients are not part of Ottla yet.
"""
