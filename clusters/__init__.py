"""Mechanism: clusters, node pools, nodes, the gateway to an API server, reconcile, drift and observation.

Knows neither projects nor workloads: the apps above register desired-state sources and observation handlers
at start-up.
"""
