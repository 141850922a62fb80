"""Fit a classifier to a few labelled images, on a pretrained network."""
