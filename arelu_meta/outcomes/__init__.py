"""What runs give back, and how it reads."""
