"""`sutler offline`: applications of several models over a fixed pile of requests; each command has a file."""
