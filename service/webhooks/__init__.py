"""Events sent to the caller's own addresses, signed, and never into private networks unless allowed."""
