"""What a method's file imports: the interface, declarations of hyper-parameters, and the registry."""

from fedbench.fields import choice, decay, integer, nonnegative, number, positive, server_rate, share, switch
from fedbench.method.configured import MEAN, MEAN_OF_STEPS, THEOREM, silent
from fedbench.method.interface import Algorithm, Client, Setting
from fedbench.method.outputs import Draws, Loss, Outputs
from fedbench.method.record import Record, Vectors
from fedbench.method.registry import register
from fedbench.theory.setting import Counts

__all__ = [
    "MEAN",
    "MEAN_OF_STEPS",
    "THEOREM",
    "Algorithm",
    "Client",
    "Counts",
    "Draws",
    "Loss",
    "Outputs",
    "Record",
    "Setting",
    "Vectors",
    "choice",
    "decay",
    "integer",
    "nonnegative",
    "number",
    "positive",
    "register",
    "server_rate",
    "share",
    "silent",
    "switch",
]
