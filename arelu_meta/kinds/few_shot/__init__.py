"""Meta-train on episodes and test on episodes."""
