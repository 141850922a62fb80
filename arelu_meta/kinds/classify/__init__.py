"""Train a classifier and test it."""
