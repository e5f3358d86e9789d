"""What Tilewright needs to know of a NumPy array or a torch tensor, without importing torch."""

import sys

from .errors import UsageError
from .library import DTYPES, TENSOR

# bf16 has no type in NumPy itself: ml_dtypes.bfloat16 where that is installed, else the bits as uint16.
NUMPY_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "uint16": "bf16", "float32": "fp32"}
TORCH_DTYPES = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float32": "fp32"}


def is_torch(tensor):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def is_numpy(tensor):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(tensor, numpy.ndarray)


def device_of(tensor, name):
    """("cuda", index) for torch CUDA tensors; ("simulator", 0) for NumPy arrays and torch CPU tensors."""
    if is_numpy(tensor):
        return "simulator", 0
    if not is_torch(tensor):
        raise UsageError(f"{name} is a {type(tensor).__name__}; expected a NumPy array or a torch tensor")
    kind = tensor.device.type
    if kind == "cuda":
        return "cuda", tensor.device.index
    if kind == "cpu":
        return "simulator", 0
    raise UsageError(f"{name} is on the device '{kind}'; expected cuda or cpu")


def dtype_of(tensor, name):
    """The spec's word for the element type."""
    table = NUMPY_DTYPES if is_numpy(tensor) else TORCH_DTYPES
    dtype = table.get(str(tensor.dtype))
    if dtype is None:
        raise UsageError(f"{name} holds {tensor.dtype}; expected one of {', '.join(table)}")
    return dtype


def strides_of(tensor, name):
    """In elements."""
    if not is_numpy(tensor):
        return tensor.stride()
    size = tensor.itemsize
    if any(stride % size for stride in tensor.strides):
        raise UsageError(f"{name} has byte strides {tensor.strides}, which are not multiples of its {size}-byte elements")
    return tuple(stride // size for stride in tensor.strides)


def pack(tensor, name, rank, heads_first):
    """A tw_tensor. `heads_first`: the tensor is given as [batch, heads, sequence, head_dim]."""
    shape, strides = tuple(tensor.shape), strides_of(tensor, name)
    if len(shape) != rank:
        raise UsageError(f"{name} has shape {shape}; expected {rank} dimensions")
    if rank == 3:
        shape, strides = shape + (0,), strides + (0,)
    elif heads_first:
        shape = (shape[0], shape[2], shape[1], shape[3])
        strides = (strides[0], strides[2], strides[1], strides[3])
    address = tensor.ctypes.data if is_numpy(tensor) else tensor.data_ptr()
    return TENSOR.pack(address, DTYPES[dtype_of(tensor, name)], rank, *shape, *strides)


def check_writable(tensor, name):
    if is_numpy(tensor) and not tensor.flags.writeable:
        raise UsageError(f"{name} is a read-only array")


def empty_like(tensor, shape, dtype):
    """An uninitialised, contiguous tensor of the same kind and device; `dtype` is the spec's word."""
    if is_numpy(tensor):
        import numpy

        if dtype == "bf16":
            # Whichever form of bf16 the caller uses.
            element = tensor.dtype if str(tensor.dtype) == "bfloat16" else numpy.uint16
        else:
            element = {"fp16": numpy.float16, "fp32": numpy.float32}[dtype]
        return numpy.empty(shape, element)
    import torch

    element = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    return torch.empty(shape, dtype=element, device=tensor.device)


def current_stream(tensor):
    """The handle of torch's current stream on the tensor's device; None off the GPU."""
    if is_torch(tensor) and tensor.device.type == "cuda":
        import torch

        return torch.cuda.current_stream(tensor.device).cuda_stream
    return None
