"""Rates that a deployment learns of its own engines."""
