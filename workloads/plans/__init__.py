"""Change plans: the effect of a change of configuration, computed before it is applied; applied once; rolled back."""
