"""Making plans from the queue: a worker takes a plan up, a process of its own solves it."""
