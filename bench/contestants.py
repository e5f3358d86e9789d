"""Who is compared: ours, torch's FA2 and cuDNN back ends, FlexAttention, and FA3 where it is at hand. Needs torch.

A contestant is made for one cell and is a function without arguments that starts one forward pass on the current stream
and returns its output as [batch, sequence, heads, head_dim].
"""

import ctypes
import dataclasses
import functools
import pathlib
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import tilewright  # noqa: E402
from tilewright.tensors import device_of  # noqa: E402


@dataclasses.dataclass
class Inputs:
    """Tensors of one cell, [batch, sequence, heads, head_dim]."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor

    @staticmethod
    def random(cell, dtype, seed=0, device="cuda"):
        generator = torch.Generator(device).manual_seed(seed)

        def tensor(heads):
            shape = (cell.batch, cell.seqlen, heads, cell.head_dim)
            return torch.randn(shape, generator=generator, device=device, dtype=dtype)

        return Inputs(tensor(cell.heads), tensor(cell.kv_heads), tensor(cell.kv_heads))


@dataclasses.dataclass
class Contestant:
    name: str
    start: Callable[[], torch.Tensor]
    about: dict  # for the JSON file: layout, schedule, registers …


@functools.cache
def our_runtime(device):
    return tilewright.Runtime(*device)


def ours(cell, inputs, dtype, blocks=None):
    """`blocks`: a cells.Blocks, or None for the default schedule."""
    spec = {
        "head_dim": cell.head_dim,
        "dtype": dtype,
        "gqa_ratio": cell.heads // cell.kv_heads,
        "mask": "causal" if cell.causal else "none",
    }
    if blocks:
        spec["blocks"] = dict(blocks.values)
    kernel = our_runtime(device_of(inputs.q, "q")).kernel(spec)
    # NaN: an element that the kernel leaves out cannot pass for right.
    out = torch.full_like(inputs.q, float("nan"))

    def start():
        kernel.launch(inputs.q, inputs.k, inputs.v, out)
        return out

    kept = ("target", "schedule", "compiler", "compile_ms", "registers", "spill_bytes", "shared_memory", "from", "notes")
    about = {key: kernel.info[key] for key in kept}
    return Contestant(blocks.name if blocks else "ours", start, {"layout": "bshd", **about})


def sdpa(name, backend, cell, inputs):
    """One contestant for each layout in memory that torch's function may be given: the faster one will stand for it."""
    gqa = cell.heads != cell.kv_heads

    def contestant(layout, tensors):
        def start():
            with sdpa_kernel(backend):
                out = F.scaled_dot_product_attention(*tensors, is_causal=cell.causal, enable_gqa=gqa)
            return out.transpose(1, 2)

        return Contestant(name, start, {"layout": layout})

    views = [tensor.transpose(1, 2) for tensor in (inputs.q, inputs.k, inputs.v)]
    return [contestant("bshd", views), contestant("bhsd", [view.contiguous() for view in views])]


compiled_flex = None


def flex(cell, inputs):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    global compiled_flex
    if compiled_flex is None:
        # A compile for each cell; the default limit of eight would fall back to an unfused path without a word.
        torch._dynamo.config.recompile_limit = 1000
        compiled_flex = torch.compile(flex_attention, dynamic=False)
    block_mask = None
    if cell.causal:
        block_mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, cell.seqlen, cell.seqlen, device="cuda")
    q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in (inputs.q, inputs.k, inputs.v))
    gqa = cell.heads != cell.kv_heads

    def start():
        return compiled_flex(q, k, v, block_mask=block_mask, enable_gqa=gqa).transpose(1, 2)

    return Contestant("flex", start, {"layout": "bhsd"})


def fa3(cell, inputs, extension=None):
    """`extension`: the shared object of FA3's torch operators; else its Python module, if that is installed."""
    if extension:
        ctypes.CDLL(extension, mode=ctypes.RTLD_GLOBAL)
        # Its own build and the wheel `fa3-fwd` register the same operator under different names.
        forward = next(space.fwd for space in (torch.ops.flash_attn_3, torch.ops.fa3_fwd) if hasattr(space, "fwd"))

        def start():
            return forward(inputs.q, inputs.k, inputs.v, is_causal=cell.causal, num_splits=1)[0]

    else:
        from flash_attn_interface import flash_attn_func

        def start():
            out = flash_attn_func(inputs.q, inputs.k, inputs.v, causal=cell.causal)
            return out[0] if isinstance(out, tuple) else out

    return Contestant("fa3", start, {"layout": "bshd"})


def makers(names, blocks_list, with_default, dtype, fa3_extension):
    """(name, function of cell and inputs to a list of contestants that stand for one), in a fixed order."""
    table = {
        "fa2": lambda cell, inputs: sdpa("fa2", SDPBackend.FLASH_ATTENTION, cell, inputs),
        "cudnn": lambda cell, inputs: sdpa("cudnn", SDPBackend.CUDNN_ATTENTION, cell, inputs),
        "flex": lambda cell, inputs: [flex(cell, inputs)],
        "fa3": lambda cell, inputs: [fa3(cell, inputs, fa3_extension)],
    }
    chosen = [(name, table[name]) for name in names]
    if with_default:
        chosen.append(("ours", lambda cell, inputs: [ours(cell, inputs, dtype)]))
    for blocks in blocks_list:

        def make(cell, inputs, blocks=blocks):
            if blocks.head_dim not in (None, cell.head_dim):
                return []
            return [ours(cell, inputs, dtype, blocks)]

        chosen.append((blocks.name, make))
    return chosen


def reference_rows(cell):
    """The query rows that are compared: the first and last tiles, and some between."""
    last = cell.seqlen - 1
    return sorted({*range(0, 40), *range(last - 40, last + 1), *range(0, last, max(1, last // 48))} & {*range(last + 1)})


class Reference:
    """fp64 answers for some rows of some heads, and the error of a plain implementation there: scores in fp32 from the
    stored inputs, P and the output rounded to the dtype. An output passes if its error is at most twice that."""

    def __init__(self, cell, inputs):
        rows = torch.tensor(reference_rows(cell), device=inputs.q.device)
        # The first and the last head of the first and the last sequence.
        self.places = sorted({(b, h) for b in (0, cell.batch - 1) for h in (0, cell.heads - 1)})
        self.rows = rows
        self.answers = []
        errors = []
        for b, h in self.places:
            kv_head = h * cell.kv_heads // cell.heads
            q, k, v = inputs.q[b, rows, h], inputs.k[b, :, kv_head], inputs.v[b, :, kv_head]
            hidden = torch.arange(cell.seqlen, device=rows.device) > rows[:, None] if cell.causal else None

            def answer(number, rounding):
                scores = q.to(number) @ k.to(number).T / cell.head_dim**0.5
                if hidden is not None:
                    scores = scores.masked_fill(hidden, float("-inf"))
                weights = rounding(torch.softmax(scores, -1))
                return rounding(weights @ v.to(number)).double()

            exact = answer(torch.float64, lambda x: x)
            plain = answer(torch.float32, lambda x: x.to(q.dtype).float())
            self.answers.append(exact)
            errors.append((plain - exact).abs())
        errors = torch.stack(errors)
        self.allowed = 2 * errors.max().item()
        self.allowed_rms = 2 * errors.square().mean().sqrt().item()

    def check(self, out):
        """{"error", "allowed", "rms_error", "rms_allowed", "correct"}; NaN anywhere in `out` is wrong."""
        errors = torch.stack(
            [(out[b, self.rows, h].double() - exact).abs() for (b, h), exact in zip(self.places, self.answers)]
        )
        error, rms = errors.max().item(), errors.square().mean().sqrt().item()
        finite = bool(torch.isfinite(out).all())
        correct = finite and error <= self.allowed and rms <= self.allowed_rms
        return dict(error=error, allowed=self.allowed, rms_error=rms, rms_allowed=self.allowed_rms, correct=correct)
