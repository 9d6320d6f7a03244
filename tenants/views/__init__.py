"""Pages of the tenants' side: sign-in, projects, clusters and the audit trail."""
