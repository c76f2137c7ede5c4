"""What the fits say and how far they can be trusted: attributions, fidelity, export."""
