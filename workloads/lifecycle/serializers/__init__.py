"""Workloads and pods as REST sends them."""
