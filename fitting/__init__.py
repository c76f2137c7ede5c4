"""The mathematics of the fits: arrays in, records out, no text and no model."""
