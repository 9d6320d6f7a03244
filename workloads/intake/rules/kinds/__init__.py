"""The allowlist of every kind: for each manifest type the fields of its spec that a tenant may write."""
