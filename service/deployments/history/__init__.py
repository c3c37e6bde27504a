"""What deployments cost and were asked over time: from the plans, reports and traffic in the store."""
