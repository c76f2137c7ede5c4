"""Surrogate models as scikit-learn estimators on masks."""
