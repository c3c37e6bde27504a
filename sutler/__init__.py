"""Plans which GPUs to rent, how to deploy LLMs on them and where to route each workload, with proof."""
