"""Exact answers for small graphs: every state enumerated, or variables eliminated."""

# Whether moves of one variable lead from any state that zeros allow to any other; see `support`.
CONNECTED = "connected"  # they do
SPLIT = "split"  # they do not
UNKNOWN = "unknown"
