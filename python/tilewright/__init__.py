"""Tilewright: attention kernels made for exactly the problem at hand.

    out = tilewright.attention(q, k, v, mask="causal")

See attention(), Runtime and Kernel. Neither torch nor NumPy is imported before a tensor of theirs is passed.
"""

from .functional import attention
from .errors import CompileError, DeviceError, InternalError, SetupError, SpecError, TilewrightError, UsageError
from .library import library
from .runtime import Kernel, Runtime, dropout_mask

__all__ = [
    "attention", "dropout_mask", "Kernel", "Runtime", "version",
    "CompileError", "DeviceError", "InternalError", "SetupError", "SpecError", "TilewrightError", "UsageError",
]


def version():
    """The library's version, as in "0.1.0"."""
    return library().tw_version().decode()
