"""The traffic that deployments see: reported by callers or read from their engines, and turned into rates."""
