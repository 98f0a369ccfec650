"""Data sets, their partition over clients, and what happens to a gathered batch."""

from fedbench.data.dataset import Dataset
from fedbench.data.partitions import class_counts, partition
from fedbench.data.registry import load
from fedbench.data.transforms import augment_batch, to_input

__all__ = ["Dataset", "augment_batch", "class_counts", "load", "partition", "to_input"]
