"""What chains run on: one file a backend, all behind one protocol."""
