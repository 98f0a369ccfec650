"""`fedbench.files.InUse`, under the name that it had before."""

from fedbench.files import InUse as InUse
