"""The application: every feature's endpoints put together, health and metrics."""
