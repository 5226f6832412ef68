"""Estimators with the conventions of scikit-learn; `minigibbs.sklearn` has their public names."""
