"""Pre-train on a source set, fine-tune on a target set."""
