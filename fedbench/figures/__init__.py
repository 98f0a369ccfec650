"""Figures, drawn from the files of run and sweep directories. Only pictures of partitions import torch."""

from fedbench.files import drop_unknown_backend

drop_unknown_backend()
