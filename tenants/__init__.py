"""Who works where and how much they may use: departments, projects, quotas, memberships, service accounts."""
