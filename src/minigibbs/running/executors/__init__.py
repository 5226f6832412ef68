"""Where segments of a run are carried out."""
