"""The database: where it is (`engine`), what is in it (`tables`), and how it comes to be so (`upgrade`)."""
