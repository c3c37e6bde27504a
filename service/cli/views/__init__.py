"""What people read in the terminal: tables, charts and sentences of plans, markets and measurements."""
