"""The whole store in a file, and back: consistent while the service runs, refused when it is not whole."""
