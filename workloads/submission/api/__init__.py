"""REST of submissions."""
