"""The version of the package, and where it lies."""

from pathlib import Path

VERSION = "0.2.0"
PACKAGE = Path(__file__).parent
