"""The evaluations of four papers again, by sutler and its rivals on one throughput model: writes docs/papers.md."""
