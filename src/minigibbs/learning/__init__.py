"""Learning of parameters from data: `mg.learn`."""
