"""The priority dictionary: priorities, categories, workload types and presets, and the plans of their changes."""
