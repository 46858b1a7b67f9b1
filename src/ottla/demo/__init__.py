"""`ottla demo`: run every part of Ottla for a minute and check the results.

`orders` says what is produced, from a seed, so that `checks` knows what must come out. `workers`,
`ledger` and `pipeline` are programs of their own, run as child processes by `crew`; `evidence`
reads their results from topics, databases and files; `screen` shows it; `run` runs all of it.
"""
