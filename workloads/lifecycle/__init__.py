"""A workload from its acceptance to its end: applied, observed, acted on, shown."""
