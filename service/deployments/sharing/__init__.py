"""What deployments of one service leave to each other: none plans on what another has or is about to rent."""
