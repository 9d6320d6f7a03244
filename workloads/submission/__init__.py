"""Submitting: the pages, native and manifest REST, idempotency, replacement."""
