"""The documents that users write and read (problem, market, plan): their fields, formats and checks."""
