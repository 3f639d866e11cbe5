"""Version of the SDK."""

__version__ = "0.1.0"
