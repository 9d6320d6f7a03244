"""What runs: priority dictionary, categories, types, workloads, their events and preemption records, plans."""
