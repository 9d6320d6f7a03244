"""Preemption records: detected from what clusters show, shown as timelines."""
