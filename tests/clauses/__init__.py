"""The five systems that Ottla was asked for, clause by clause.

Each folder here is one system and follows one document:

- `share_consumer`: crabka-client-consumer, the asynchronous consumer of KIP-932 share groups
- `persister`: crabka-broker, share state that outlives members, leaders and brokers
- `metadata_manager`: crabka-remote-storage-topic, the catalogue of tiered segments in a topic
- `offset_stores`: LANCE's client-side offset stores and hooks
- `streams`: SeaStreamer's stream consumer

How to read and write them:

- A folder's docstring names the document and what of it is another language's business. Each
  module is a section; the first line of its docstring is the heading.
- A test is one documented behaviour: a type, option, default, state, rule, error or promise. Its
  name says the behaviour, its docstring says it in a sentence, and its body shows it through names
  that users have, against a real broker, server or file system.
- Where Ottla differs on purpose, the docstring has a second paragraph that begins with `Differs:`
  and says why; the pages for newcomers say it to users.

`docs/reference/clauses.md` is made from these docstrings whenever the documentation is built, so
that a reader can hold one of the documents in one hand and that page in the other.
"""
