"""Accept a workload, or replace one that waits."""
