"""What changes from one revision of a plan to the next, machine by machine."""
