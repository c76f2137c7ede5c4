"""Adapters: one module per kind of model, all behind `BlackBox`."""
