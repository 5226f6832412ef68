"""Access to the machine: memory, files, signals, optional packages."""
