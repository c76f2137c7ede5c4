"""Faithful surrogate explanations of black-box Transformers."""
