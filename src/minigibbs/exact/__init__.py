"""Exact answers for small graphs: every state enumerated, or variables eliminated."""
