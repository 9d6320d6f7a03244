"""Plan, apply, discard and roll back; the kinds of plans that change quotas."""
