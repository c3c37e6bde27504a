"""What a deployment is asked for: observed traffic, from callers or read from engines."""
