"""What runs: the priority dictionary, submissions, workloads with their phases, preemptions and forecasts."""
