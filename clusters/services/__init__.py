"""What is done to clusters: reconcile, drift, estate, jobs."""
