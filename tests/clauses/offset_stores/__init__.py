"""Offset stores of the client: LANCE's lnc-client, `offset.rs`.

What of the document is Rust's business: `Send` and `Sync` as traits, `Arc` and `RwLock` around what
threads share, poisoned locks, `Clone` and `Debug`; and the lock of Windows (Ottla runs on Linux and
macOS). LANCE's `topic_id` and `consumer_id` are `OffsetKey(consumer, stream)`, its `offset` is the
position, the next sequence to read. `load` and its sisters are shown blocking, as in the document;
the stores of asyncio are the same ones.
"""
