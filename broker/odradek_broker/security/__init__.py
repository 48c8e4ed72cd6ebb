"""Who may do what and how much: principals, the authorizer, quotas."""
