"""Mail about workloads: subscriptions, channels, deliveries."""
