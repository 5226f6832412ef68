"""What the library asks of the machine: memory, files, optional packages."""
