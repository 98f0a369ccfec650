"""What a method is written with: its interface, its hyper-parameters' declarations, and the registry."""

from fedbench.method.hyper import choice, decay, nonnegative, number, positive, share, switch
from fedbench.method.interface import Algorithm, Client, Counts, Setting, unit
from fedbench.method.record import Record, Vectors
from fedbench.method.registry import register

__all__ = [
    "Algorithm",
    "Client",
    "Counts",
    "Record",
    "Setting",
    "Vectors",
    "choice",
    "decay",
    "nonnegative",
    "number",
    "positive",
    "register",
    "share",
    "switch",
    "unit",
]
