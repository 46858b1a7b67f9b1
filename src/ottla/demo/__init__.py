"""The demo: `ottla demo` runs the whole of Ottla for a minute and checks what came out.

`orders` says what is produced, from a seed, so that `checks` knows what must come out. `workers`,
`ledger` and `pipeline` are programs of their own, run as child processes by `crew`; `evidence`
reads what they left behind, asking none of them; `screen` shows it; `run` is the play.
"""
