"""Pages of the workloads: home, list, submit, one workload, the dictionary, the types and plans."""
