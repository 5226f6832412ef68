"""The version number, defined only here."""

__version__ = "0.3.0"
