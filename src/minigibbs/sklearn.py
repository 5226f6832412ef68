"""scikit-learn: estimators that fill in, repair and model tables."""

from minigibbs.interop.sklearn.imputer import CategoricalImputer
from minigibbs.interop.sklearn.machines import BoltzmannMachine, RestrictedBoltzmannMachine
from minigibbs.interop.sklearn.repairer import TableRepairer

__all__ = [
    "BoltzmannMachine",
    "CategoricalImputer",
    "RestrictedBoltzmannMachine",
    "TableRepairer",
]
