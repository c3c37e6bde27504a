"""Numbers, layouts and plans in words, for tables of the command line and for pages."""
