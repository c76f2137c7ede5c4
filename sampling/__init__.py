"""From a text to the model's answers: units, masks, queries, responses."""
