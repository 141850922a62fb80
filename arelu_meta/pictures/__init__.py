"""Figures of runs, layers and attributions."""
