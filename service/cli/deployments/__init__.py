"""`sutler deployments`: standing problems of a running service and their plans, over HTTP."""
