"""`sutler offline`: applications of several models over a fixed pile of requests."""
