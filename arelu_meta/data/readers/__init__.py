"""Readers of image sets in their publishers' formats."""
