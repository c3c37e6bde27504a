"""From a solved allocation to a plan: pieces packed onto machines, routing, watts, caveats."""
