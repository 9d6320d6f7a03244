"""Policies: what a scope presets and demands of workloads, and the rows that belong to a scope."""
