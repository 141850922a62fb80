"""Train a segmentation network on image and mask pairs."""
