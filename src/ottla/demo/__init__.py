"""`ottla demo`: run every part of Ottla for a minute and check the results.

`orders` says what is produced, from a seed, so that `checks` knows what must come out. Each of
these shows one thing: `nodes` (a node is killed), `shops` (the secured listener), `workers` (the
share group), `ledger` (exactly once into SQLite), `table` (the topic as an Iceberg table),
`pipeline` (Spark), `console`. Nodes, workers, ledger and pipeline are child processes (`child`,
`crew`). `evidence` reads results from topics, databases and files; `screen` shows `figures`; `run`
runs all of it.
"""
