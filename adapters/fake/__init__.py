"""A fake of the clouds: one HTTP server that answers as all of them do, from one living market, and fails on demand.

`sutler dev fake-cloud` runs it for people without keys; tests use `server.FakeCloud`. Bodies follow the clouds'
documented shapes, every value in them is invented.
"""
