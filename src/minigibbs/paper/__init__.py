"""The paper reproduced: its figures, its table and its theorems; see docs/paper.md."""
