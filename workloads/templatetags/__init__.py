"""Template tags of the workloads' pages."""
