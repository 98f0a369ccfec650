"""Figures, drawn from the CSV files of run and sweep directories alone. No torch."""
