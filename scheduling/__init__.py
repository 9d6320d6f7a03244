"""Rung's model of a GPU scheduler: what would happen to this workload, who would be evicted, and why it waits.

Charter: values in, values out. Standard library only: no Django, no clock, no randomness; time and ids are arguments.
A snapshot is never changed; a refusal is a value with a reason code and its numbers. One kit (resources, capacity,
fair share, placement, board, victims) carries small rules per flavour (`rules/`). The result is an estimate: what it
follows, what it leaves out and how often it agrees with real schedulers is in `docs/model.md`.
"""
