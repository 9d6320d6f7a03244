"""Replay: recorded submissions or a trace, under a proposed dictionary or quota, before and after."""
