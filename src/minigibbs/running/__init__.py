"""From a call to its result: the plan, the groups of chains and the run loop."""
