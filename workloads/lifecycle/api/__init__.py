"""REST of workloads, their pods and their numbers."""
