"""Reads of workloads: who may see them, their timeline, what they use."""
