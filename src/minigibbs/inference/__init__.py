"""Answers: the method is chosen for the user."""
