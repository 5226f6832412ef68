"""The contract of ensembles: every layout, on every device, does the same."""
