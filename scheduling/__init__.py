"""Rung's model of a GPU scheduler: what would happen to this workload, who would be evicted, and why it waits.

Values in, values out. Standard library only: no Django, no clock, no randomness; time and ids are arguments. Snapshots
never change; a refusal is a value with a reason code and its numbers. `model` holds the values, `state` what all
schedulers share, `rules` one module or folder per scheduler, `forecast` the questions asked of them. The result is an
estimate: `docs/model.md` says what it covers, what it leaves out, and how often it agrees with real schedulers.
"""
