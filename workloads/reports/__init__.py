"""Usage reports: requested by people, made by workers."""
