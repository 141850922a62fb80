"""What finished runs say together: tests against a baseline, a verdict, and the pages that show them."""
