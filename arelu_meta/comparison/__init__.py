"""Comparisons: a grid of runs over arms, settings and seeds, run, resumed and collected."""
