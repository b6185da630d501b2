"""gbun: gradient boosting of untrained neural networks."""
