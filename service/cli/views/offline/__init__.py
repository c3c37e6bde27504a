"""Offline plans, and what becomes of them, as people read them."""
