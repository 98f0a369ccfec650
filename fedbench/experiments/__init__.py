"""The papers' figures and tables: tuning, running, drawing, reporting."""
