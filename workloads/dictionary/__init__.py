"""The priority dictionary: priorities, categories, workload types, presets, and change plans."""
