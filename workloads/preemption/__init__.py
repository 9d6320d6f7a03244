"""Preemption records: detected from what clusters show, told as timelines."""
