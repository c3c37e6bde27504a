"""Keeps a running router at a plan's weights: new revisions, replicas that die and come back."""
