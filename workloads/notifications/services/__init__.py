"""Channels and subscriptions, deliveries, and the connection to mail servers."""
