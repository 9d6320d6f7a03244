"""The REST door of the tenants: tokens, and who is behind a request."""
