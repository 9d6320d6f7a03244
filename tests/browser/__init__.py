"""A real browser against the real pages."""
