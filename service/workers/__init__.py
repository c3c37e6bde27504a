"""What runs beside the API: planning, looking after deployments, polling, sending and cleaning up."""
