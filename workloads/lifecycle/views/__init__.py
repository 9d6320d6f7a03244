"""Home, the list, one workload and its actions."""
