"""Takes a while to load, for who stops waiting meanwhile."""

import time

time.sleep(1.0)
