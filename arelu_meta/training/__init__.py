"""Training loops: `meta` over episodes, `supervised` over batches, `stacked` for several seeds as one network."""
