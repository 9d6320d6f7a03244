"""Networks lie and workers stop: what must hold all the same, on a real API server behind a breaking proxy."""
