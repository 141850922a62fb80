"""MLflow, run folders and checkpoints, and the networks in them."""
