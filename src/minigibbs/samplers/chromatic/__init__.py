"""Chromatic scans: all variables of a colour at a time, several chains side by side."""
