"""What a CPU does faster for many episodes at once; private interfaces of torch are used here and nowhere else."""

GENERATION = 2
"""Raised when a change of a kernel gives a seed other results; a tag of runs, and reports say where it differs."""
