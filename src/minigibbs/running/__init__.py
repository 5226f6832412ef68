"""From a request to a result: plan, groups of chains, the one run loop."""
