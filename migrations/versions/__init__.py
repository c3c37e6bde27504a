"""One module per version."""
