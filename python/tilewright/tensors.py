"""What Tilewright needs to know of a NumPy array or a torch tensor, without importing either on its own account."""

import sys

from .errors import UsageError
from .library import DTYPES, TENSOR


class NumpyArrays:
    """Host memory, for the simulator. bf16 has no type in NumPy itself: ml_dtypes.bfloat16 where that is installed,
    else the bits as uint16."""

    dtypes = {"float16": "fp16", "bfloat16": "bf16", "uint16": "bf16", "float32": "fp32"}

    @staticmethod
    def device(array):
        return None

    @staticmethod
    def address(array):
        return array.__array_interface__["data"][0]

    @staticmethod
    def strides(array):
        size = array.itemsize
        if any(stride % size for stride in array.strides):
            raise UsageError(f"an array has byte strides {array.strides}, no multiples of its {size}-byte elements")
        return tuple(stride // size for stride in array.strides)

    @staticmethod
    def check_writable(array, name):
        if not array.flags.writeable:
            raise UsageError(f"{name} is a read-only array")

    @staticmethod
    def empty(like, shape, dtype):
        import numpy

        bits = like.dtype if str(like.dtype) == "bfloat16" else numpy.uint16  # whichever form of bf16 the caller uses
        return numpy.empty(shape, {"fp16": numpy.float16, "fp32": numpy.float32, "bf16": bits}[dtype])

    @staticmethod
    def workspace(like, size, stream):
        import numpy

        return numpy.empty(size, numpy.uint8)

    @staticmethod
    def stream(array):
        return None


class TorchTensors:
    """Device memory on CUDA; torch CPU tensors are for the simulator."""

    dtypes = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float32": "fp32"}

    @staticmethod
    def device(tensor):
        return tensor.device

    @staticmethod
    def address(tensor):
        return tensor.data_ptr()

    @staticmethod
    def strides(tensor):
        return tensor.stride()

    @staticmethod
    def check_writable(tensor, name):
        pass

    @staticmethod
    def empty(like, shape, dtype):
        import torch

        element = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
        return torch.empty(shape, dtype=element, device=like.device)

    @staticmethod
    def workspace(like, size, stream):
        """Bytes for one launch on the stream (a handle; None: the current one)."""
        import torch

        bytes = torch.empty(size, dtype=torch.uint8, device=like.device)
        if like.is_cuda and stream is not None:
            bytes.record_stream(torch.cuda.ExternalStream(stream, like.device))
        return bytes

    @staticmethod
    def stream(tensor):
        import torch

        return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None


# By the type of the tensor and by its dtype object: a launch must not spend its time on looking these up.
kinds = {}
codes = {}


def kind_of(tensor, name):
    """NumpyArrays or TorchTensors."""
    kind = kinds.get(type(tensor))
    if kind is None:
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy and isinstance(tensor, numpy.ndarray):
            kind = NumpyArrays
        elif torch and isinstance(tensor, torch.Tensor):
            kind = TorchTensors
        else:
            raise UsageError(f"{name} is a {type(tensor).__name__}; expected a NumPy array or a torch tensor")
        kinds[type(tensor)] = kind
    return kind


def device_of(tensor, name):
    """("cuda", index) for torch CUDA tensors; ("simulator", 0) for NumPy arrays and torch CPU tensors."""
    device = kind_of(tensor, name).device(tensor)
    if device is None or device.type == "cpu":
        return "simulator", 0
    if device.type == "cuda":
        return "cuda", device.index
    raise UsageError(f"{name} is on the device '{device}'; expected cuda or cpu")


def dtype_of(tensor, name):
    """The spec's word for the element type."""
    table = kind_of(tensor, name).dtypes
    dtype = table.get(str(tensor.dtype))
    if dtype is None:
        raise UsageError(f"{name} holds {tensor.dtype}; expected one of {', '.join(table)}")
    return dtype


def pack(kind, tensor, name, heads_first):
    """A tw_tensor of rank 4. `heads_first`: the tensor is given as [batch, heads, sequence, head_dim]."""
    code = codes.get(tensor.dtype)
    if code is None:
        code = codes[tensor.dtype] = DTYPES[dtype_of(tensor, name)]
    shape = tensor.shape
    if len(shape) != 4:
        raise UsageError(f"{name} has shape {tuple(shape)}; expected 4 dimensions")
    a, b, c, d = shape
    sa, sb, sc, sd = kind.strides(tensor)
    if heads_first:
        b, c, sb, sc = c, b, sc, sb
    return TENSOR.pack(kind.address(tensor), code, 4, a, b, c, d, sa, sb, sc, sd)


def pack_lse(kind, tensor):
    """A tw_tensor of rank 3: [batch, heads, sequence]."""
    return pack_rank(kind, tensor, "lse", 3)


def pack_rank(kind, tensor, name, rank):
    """A tw_tensor of a rank up to 4, its dimensions as they are; int32 arrays too."""
    shape = tuple(tensor.shape)
    if len(shape) != rank:
        raise UsageError(f"{name} has shape {shape}; expected {rank} dimension{'s' if rank > 1 else ''}")
    exact = {"int32": "int32", "torch.int32": "int32", "bool": "bool", "torch.bool": "bool"}
    dtype = exact.get(str(tensor.dtype)) or dtype_of(tensor, name)
    rest = (0,) * (4 - rank)
    return TENSOR.pack(kind.address(tensor), DTYPES[dtype], rank, *shape, *rest, *kind.strides(tensor), *rest)
