"""The sandbox: a small Kubernetes kept in the database, so that Rung can be tried without a cluster.

Charter: `store` is its etcd, `admission` its API server's checks, `controllers` its controller manager, `scheduler`
and `kubelet` what their names say, and `tick` runs them once. It knows queues, priorities and quotas only from the
objects that were synced to it, never from Rung's own rows, and no container ever runs: all it shows is simulated.
"""
