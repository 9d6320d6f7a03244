"""Workload templates and assets: submissions that are filled in beforehand, for everybody in a scope."""
