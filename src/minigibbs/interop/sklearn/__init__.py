"""Estimators that follow scikit-learn's conventions; `minigibbs.sklearn` exports them."""
