"""Offline applications of several models: their documents, and the way between those and solver/offline."""
