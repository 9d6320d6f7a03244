"""REST of templates and assets."""
