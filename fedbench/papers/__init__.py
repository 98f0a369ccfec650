"""The papers that are reproduced, each a file with its figures, tables and claims, and what makes them."""
