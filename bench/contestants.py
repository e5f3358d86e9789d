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
from cells import SOFTCAP, WINDOW, document_ends, prefix_length  # noqa: E402
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


# How we say what a cell computes; where there is more than one way, the other one.
BUILT_IN = {
    "full": {"mask": "none"},
    "causal": {"mask": "causal"},
    "window": {"mask": {"window": [WINDOW - 1, 0]}},
    "softcap": {"mask": "causal", "softcap": SOFTCAP},
    "alibi": {"mask": "causal", "alibi": True},
    "document": {"mask": '"kv <= q && kv >= start[q]"', "tensors": {"start": '"int32[q]"'}},
    "prefix": {"mask": '"kv <= q || kv < prefix"', "scalars": {"prefix": "int"}},
}
EXPRESSIONS = {
    "causal": {"mask": '"q >= kv"'},
    "window": {"mask": f'"q >= kv && q - kv < {WINDOW}"'},
    "softcap": {"mask": '"q >= kv"', "score": f'"{SOFTCAP} * tanh(score / {SOFTCAP})"'},
}


@functools.cache
def documents(cell, device="cuda"):
    """The document of each key."""
    ends = torch.tensor(document_ends(cell.seqlen), device=device)
    return torch.searchsorted(ends, torch.arange(cell.seqlen, device=device), right=True).to(torch.int32)


def starts(cell, device="cuda"):
    """The first key of each query's document."""
    ends = document_ends(cell.seqlen)
    begins = torch.tensor([0, *ends[:-1]], device=device)
    return begins[documents(cell, device).long()].to(torch.int32)


def slopes(cell, device="cuda"):
    """The standard slopes of ALiBi."""
    n = 1 << (cell.heads.bit_length() - 1)
    exponents = [-8 * (h + 1) / n if h < n else -4 * (2 * (h - n) + 1) / n for h in range(cell.heads)]
    return 2.0 ** torch.tensor(exponents, device=device)


def ours(cell, inputs, dtype, blocks=None, expression=False):
    """`blocks`: a cells.Blocks, or None for the default schedule. `expression`: the mask or score written out; None
    for a cell that is always."""
    spec = {"head_dim": cell.head_dim, "dtype": dtype, "gqa_ratio": cell.heads // cell.kv_heads}
    given = {}
    if expression:
        if cell.mask not in EXPRESSIONS:
            return None
        spec.update(EXPRESSIONS[cell.mask])
    else:
        spec.update(BUILT_IN[cell.mask])
        if cell.mask == "document":
            given["tensors"] = {"start": starts(cell)}
        if cell.mask == "prefix":
            given["scalars"] = {"prefix": prefix_length(cell.seqlen)}
    if blocks:
        spec["blocks"] = dict(blocks.values)
    kernel = our_runtime(device_of(inputs.q, "q")).kernel(spec)
    # NaN: an element that the kernel leaves out cannot pass for right.
    out = torch.full_like(inputs.q, float("nan"))

    def start():
        kernel.launch(inputs.q, inputs.k, inputs.v, out, **given)
        return out

    kept = ("target", "schedule", "compiler", "compile_ms", "registers", "spill_bytes", "shared_memory", "from", "notes")
    about = {key: kernel.info[key] for key in kept}
    name = blocks.name if blocks else "ours[expression]" if expression else "ours"
    return Contestant(name, start, {"layout": "bshd", **about})


def sdpa(name, backend, cell, inputs):
    """One contestant for each layout in memory that torch's function may be given: the faster one will stand for it."""
    if cell.mask not in ("full", "causal"):
        return []
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
    prefix, document, slope = prefix_length(cell.seqlen), documents(cell), slopes(cell)
    masks = {
        "full": None,
        "window": lambda b, h, q, kv: (q >= kv) & (q - kv < WINDOW),
        "document": lambda b, h, q, kv: (q >= kv) & (document[q] == document[kv]),
        "prefix": lambda b, h, q, kv: (q >= kv) | (kv < prefix),
    }
    scores = {
        "softcap": lambda score, b, h, q, kv: SOFTCAP * torch.tanh(score / SOFTCAP),
        "alibi": lambda score, b, h, q, kv: score - slope[h] * (q - kv),
    }
    mask, score = masks.get(cell.mask, lambda b, h, q, kv: q >= kv), scores.get(cell.mask)
    block_mask = mask and create_block_mask(mask, None, None, cell.seqlen, cell.seqlen, device="cuda")
    q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in (inputs.q, inputs.k, inputs.v))
    gqa = cell.heads != cell.kv_heads

    def start():
        return compiled_flex(q, k, v, score_mod=score, block_mask=block_mask, enable_gqa=gqa).transpose(1, 2)

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


def makers(names, blocks_list, with_default, dtype, fa3_extension, expressions=False):
    """(name, function of cell and inputs to a list of contestants that stand for one), in a fixed order."""
    table = {
        "fa2": lambda cell, inputs: sdpa("fa2", SDPBackend.FLASH_ATTENTION, cell, inputs),
        "cudnn": lambda cell, inputs: sdpa("cudnn", SDPBackend.CUDNN_ATTENTION, cell, inputs),
        "flex": lambda cell, inputs: [flex(cell, inputs)],
        "fa3": lambda cell, inputs: [fa3(cell, inputs, fa3_extension)] if cell.mask in ("full", "causal") else [],
    }
    chosen = [(name, table[name]) for name in names]
    if with_default:
        chosen.append(("ours", lambda cell, inputs: [ours(cell, inputs, dtype)]))
    if expressions:

        def written_out(cell, inputs):
            contestant = ours(cell, inputs, dtype, expression=True)
            return [contestant] if contestant else []

        chosen.append(("ours[expression]", written_out))
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
            keys, queries = torch.arange(cell.seqlen, device=rows.device), rows[:, None]
            hidden = None if cell.mask == "full" else keys > queries
            if cell.mask == "window":
                hidden = hidden | (queries - keys >= WINDOW)
            if cell.mask == "document":
                document = documents(cell)
                hidden = hidden | (document[queries] != document[keys])
            if cell.mask == "prefix":
                hidden = hidden & (keys >= prefix_length(cell.seqlen))

            def answer(number, rounding):
                scores = q.to(number) @ k.to(number).T / cell.head_dim**0.5
                if cell.mask == "softcap":
                    scores = SOFTCAP * torch.tanh(scores / SOFTCAP)
                if cell.mask == "alibi":
                    scores = scores - slopes(cell)[h].to(number) * (queries - keys)
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
