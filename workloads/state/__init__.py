"""The workload's row, its phases (the state machine) and its timeline: what every other feature reads and moves."""
