"""Imported by a Python under the null device: the CPU's values, for compiled steps too."""

import emulplug  # noqa: F401
import null_cuda

null_cuda.without_compiler()
