"""The asynchronous share consumer: crabka-client-consumer 0.3.1, `ShareConsumer`.

What of the document is Rust's business: the builder's macros, `Arc` and `Mutex` around what tasks
share, `tokio` handles and tokens, and the crate's own client below it.
"""
