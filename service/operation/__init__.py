"""Whether the service is well: probes for orchestrators, and metrics for Prometheus."""
