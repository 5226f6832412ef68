"""Exact inference for small graphs: enumeration of all states, or variable elimination."""

# Whether single-variable moves connect all states that hard constraints allow; see `support`.
CONNECTED = "connected"  # they do
SPLIT = "split"  # they do not
UNKNOWN = "unknown"
