"""Where chains run: one loop for the CPU."""
