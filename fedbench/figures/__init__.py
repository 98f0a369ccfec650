"""Figures, drawn from the files of run and sweep directories. Only pictures of partitions import torch."""
