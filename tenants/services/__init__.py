"""The verbs of the tenants' side. Each checks permission, changes rows and writes its record in one transaction."""
