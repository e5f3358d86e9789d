"""Finds libtilewright.so and describes its C interface (tilewright.h) to ctypes."""

import ctypes
import functools
import os
import pathlib
import struct

from .errors import BY_STATUS, InternalError, SetupError

NAME = "libtilewright.so"

# struct tw_tensor: data, dtype, rank, shape[4], strides[4].
TENSOR = struct.Struct("=Qii4q4q")

DTYPES = {"fp16": 0, "bf16": 1, "e4m3": 2, "e5m2": 3, "fp32": 4, "int32": 5, "bool": 6}


class Options(ctypes.Structure):
    """struct tw_options."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("device", ctypes.c_int32),
        ("ordinal", ctypes.c_int32),
        ("cache_directory", ctypes.c_char_p),
        ("disk_cache", ctypes.c_int32),
        ("simulator_compiler", ctypes.c_int32),
        ("simulator_seed", ctypes.c_uint64),
        ("simulator_check_races", ctypes.c_int32),
        ("compiling", ctypes.c_int32),
        ("simulated_target", ctypes.c_char_p),
        ("bundles", ctypes.c_char_p),
    ]


class Scalar(ctypes.Structure):
    """struct tw_scalar."""

    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


class Dropout(ctypes.Structure):
    """struct tw_dropout."""

    _fields_ = [("rate", ctypes.c_double), ("seed", ctypes.c_uint64), ("offset", ctypes.c_uint64)]


class NamedTensor(ctypes.Structure):
    """struct tw_named_tensor; the tensor is packed bytes (TENSOR)."""

    _fields_ = [("name", ctypes.c_char_p), ("tensor", ctypes.c_ubyte * TENSOR.size)]


class Forward(ctypes.Structure):
    """struct tw_forward; the tensors are packed bytes (TENSOR)."""

    TENSORS = ("q", "k", "v", "out", "lse")
    FURTHER = ("cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv", "sinks", "block_rows", "block_columns")
    OPTIONS = ("programmatic_dependent_launch", "sm_margin")
    _fields_ = (
        [("size", ctypes.c_size_t)]
        + [(name, ctypes.c_char_p) for name in TENSORS]
        + [("softmax_scale", ctypes.POINTER(ctypes.c_double))]
        + [(name, ctypes.c_char_p) for name in FURTHER]
        + [(name, ctypes.c_int32) for name in OPTIONS]
        + [("scalars", ctypes.POINTER(Scalar)), ("scalar_count", ctypes.c_size_t)]
        + [("tensors", ctypes.POINTER(NamedTensor)), ("tensor_count", ctypes.c_size_t)]
        + [("dropout", ctypes.POINTER(Dropout))]
        + [("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t), ("tensors_unchanged", ctypes.c_int32)]
    )


class Backward(ctypes.Structure):
    """struct tw_backward; tensors as packed bytes (TENSOR)."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        *((name, ctypes.c_char_p) for name in ("q", "k", "v", "out", "lse", "d_out", "dq", "dk", "dv", "d_lse")),
        ("softmax_scale", ctypes.POINTER(ctypes.c_double)),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        *((name, ctypes.c_char_p) for name in ("sinks", "d_sinks")),
        ("scalars", ctypes.POINTER(Scalar)), ("scalar_count", ctypes.c_size_t),
        ("tensors", ctypes.POINTER(NamedTensor)), ("tensor_count", ctypes.c_size_t),
        ("dropout", ctypes.POINTER(Dropout)),
        *((name, ctypes.c_char_p) for name in ("cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv")),
        ("d_bias", ctypes.c_char_p),
    ]


def candidates():
    """Where the library may be: TILEWRIGHT_LIBRARY alone if it is set, else beside this package, in the build folder of
    a checkout, on the loader's path."""
    chosen = os.environ.get("TILEWRIGHT_LIBRARY")
    if chosen:
        return [chosen]
    here = pathlib.Path(__file__).resolve().parent
    return [str(here / NAME), str(here.parent.parent / "build" / NAME), NAME]


@functools.cache
def library():
    """The loaded library. Raises SetupError naming every place tried."""
    tried = []
    for path in candidates():
        try:
            loaded = ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"  {path}: {error}")
            continue
        declare(loaded)
        return loaded
    raise SetupError(
        f"{NAME} was not found; build it (make build) or set TILEWRIGHT_LIBRARY to its path. Tried:\n" + "\n".join(tried)
    )


def declare(loaded):
    pointer, text, status = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    out = ctypes.POINTER(ctypes.c_void_p)
    for name, result, arguments in (
        ("tw_version", text, []),
        ("tw_last_error", text, []),
        ("tw_options_init", None, [ctypes.POINTER(Options)]),
        ("tw_runtime_create", status, [ctypes.POINTER(Options), out]),
        ("tw_runtime_destroy", None, [pointer]),
        ("tw_runtime_info", text, [pointer]),
        ("tw_runtime_prepare", status, [pointer, ctypes.POINTER(text), ctypes.POINTER(text), ctypes.c_size_t]),
        ("tw_kernel_create", status, [pointer, text, text, out]),
        ("tw_kernel_find", status, [pointer, text, text, out]),
        ("tw_kernel_destroy", None, [pointer]),
        ("tw_kernel_info", text, [pointer]),
        ("tw_kernel_source", text, [pointer]),
        # The tensors are passed as packed bytes (TENSOR): cheaper than filling ctypes structures.
        ("tw_launch", status, [pointer] * 7 + [ctypes.POINTER(ctypes.c_double)]),
        ("tw_launch_forward", status, [pointer, pointer, ctypes.POINTER(Forward)]),
        ("tw_launch_backward", status, [pointer, pointer, ctypes.POINTER(Backward)]),
        ("tw_dropout_mask", status, [ctypes.POINTER(Dropout), pointer, pointer, pointer]),
        ("tw_workspace_size", status, [pointer] + [ctypes.c_int64] * 4 + [ctypes.POINTER(ctypes.c_size_t)]),
        ("tw_supports", status, [text, text, text, ctypes.POINTER(ctypes.c_int)]),
    ):
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments


def check(status):
    """Raises the exception that belongs to a tw_status, with the library's message."""
    if status:
        message = library().tw_last_error().decode("utf-8", "replace")
        raise BY_STATUS.get(status, InternalError)(message)
