"""Actions of people, workers and observers on workloads."""
