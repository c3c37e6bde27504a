"""Who may call the API: keys, their scopes and limits, and the audit log of what was changed."""
