"""Load, seeded faults and invariants for the installation of separate processes in `tests.support.stack`."""
