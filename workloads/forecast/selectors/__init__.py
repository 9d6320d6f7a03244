"""Snapshots of observed clusters and what the model says of them. Nothing here writes."""
