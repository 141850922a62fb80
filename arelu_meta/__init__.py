"""Which activation function lets a network adapt fastest, and is the difference real?

Importing the package loads neither torch nor mlflow; its parts do when they are used.
"""

__version__ = "0.1.0"
