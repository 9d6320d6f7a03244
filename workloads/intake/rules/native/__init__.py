"""Run:ai's native submission: the `spec` of a workspace, training, inference or template."""
