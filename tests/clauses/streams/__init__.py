"""One consumer for several stores: SeaStreamer's guide, the page `Consumer`.

What of the document is Rust's business: traits and the crates that implement them, `Stream` of the
futures crate and its adapters. Its guide names four backends; a clause that says something about
all of them is shown with Kafka (an Ottla broker), Redis, a file and pipes. Producers are not part
of that page.
"""
