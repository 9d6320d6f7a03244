"""`rung`, the command line of Rung. It speaks REST to a server and imports nothing of it.

What belongs where: `commands` holds one module per group of commands, which parse, ask and show; `completions` offers
names to shells; `manifests` reads, compares and applies documents, with one class per kind in `manifests.kinds`;
`http.transport` is the only module that sends anything; `config` is the only place that keeps files; `output` decides
how an answer looks. Rules that hold everywhere: a secret is never an argument and never printed; a token goes to the
address it was made for and nowhere else; every write carries an idempotency key; exit codes are those of `errors`.
"""

__version__ = "0.1.0"
