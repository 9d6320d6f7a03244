"""Policies as values: their documents, and what those of several scopes add up to. Pure."""
