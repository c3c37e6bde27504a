"""Calls to URLs that callers give: only where the operator allows, and over in bounded time."""
