"""The version of the tables that this sutler works with: the newest file in migrations/versions."""

HEAD = "0006"
