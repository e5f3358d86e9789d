"""attention() for torch tensors that need gradients: operators of torch's own library, so that autograd and torch.compile
take them as they are. Imported on first use; needs torch.

A spec travels as YAML text: operators take text, and kernels are kept by it.
"""

import re

import torch

from .errors import UsageError
from .runtime import default_runtime, dropout_of, given, spec_text
from .tensors import device_of

# By number: an operator takes no objects. 0 is the default runtime of the tensors' device.
runtimes = []


def number_of(runtime):
    if runtime is None:
        return 0
    if runtime not in runtimes:
        runtimes.append(runtime)
    return runtimes.index(runtime) + 1


def kernel_of(spec, runtime, q):
    chosen = runtimes[runtime - 1] if runtime else default_runtime(*device_of(q, "q"))
    return chosen.kernel(spec)


def numbers_of(dropout):
    """Dropout for an operator, which takes lists of floats: no integer of 64 bits fits one, so each goes in two halves."""
    if dropout is None:
        return []
    checked = dropout_of(dropout).contents
    halves = [half for number in (checked.seed, checked.offset) for half in (number >> 32, number & 0xFFFFFFFF)]
    return [checked.rate, *map(float, halves)]


def dropout_from(numbers):
    if not numbers:
        return None
    rate, *halves = numbers
    seed_high, seed_low, offset_high, offset_low = map(int, halves)
    return rate, seed_high << 32 | seed_low, offset_high << 32 | offset_low


def without_keys(text, keys):
    """A spec's text without some of its keys, and without what is indented below them."""
    kept, dropping = [], False
    for line in text.splitlines():
        if line[:1] not in ("", " ", "\t", "#"):
            dropping = line.split(":")[0] in keys
        if not dropping:
            kept.append(line + "\n")
    return "".join(kept)


BIAS_GRADIENT = "bias_gradient: true\n"


def forward_and_backward(spec, bias_gradient):
    """The texts of the spec with LSE, and of its backward pass, whose schedule is its own."""
    text = without_keys(spec_text(spec)[0], ("name", "pass", "lse", "bias_gradient"))
    backward = f"pass: backward\n{without_keys(text, ('blocks',))}lse: true\n"
    return f"pass: forward\n{text}lse: true\n", backward + (BIAS_GRADIENT if bias_gradient else "")


def output_shapes(q, v, heads_first):
    """Of the output and of LSE."""
    if q.dim() == 3:  # layout packed
        return (*q.shape[:2], v.shape[2]), (q.shape[1], q.shape[0])
    batch, rows, heads = (q.shape[0], q.shape[2], q.shape[1]) if heads_first else q.shape[:3]
    return (*q.shape[:3], v.shape[3]), (batch, heads, rows)


SEQUENCES = ("cu_seqlens_q", "cu_seqlens_kv", "seqused_q", "seqused_kv")


def sequences_of(arrays):
    """What a launch takes of layout packed: of four arrays or None."""
    return {name: array for name, array in zip(SEQUENCES, arrays) if array is not None}


def is_heads_first(spec):
    return re.search(r"^layout:\s*bhsd\b", spec, re.MULTILINE) is not None


def what_else(sinks, tensors, scalars, names):
    """The further arguments of a launch. `names`: of tensors, then of scalars, with commas between; operators take no
    dicts."""
    names = names.split(",") if names else []
    return dict(given(sinks=sinks), tensors=dict(zip(names, tensors)), scalars=dict(zip(names[len(tensors):], scalars)))


@torch.library.custom_op("tilewright::attention", mutates_args=())
def attention_operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None,
                       tensors: list[torch.Tensor], scalars: list[float], names: str, forward: str, backward: str,
                       runtime: int, dropout: list[float], cu_seqlens_q: torch.Tensor | None,
                       cu_seqlens_kv: torch.Tensor | None, seqused_q: torch.Tensor | None,
                       seqused_kv: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    out_shape, lse_shape = output_shapes(q, v, is_heads_first(forward))
    # Rows of no sequence are not written.
    new = q.new_empty if cu_seqlens_q is None else q.new_zeros
    out, lse = new(out_shape), new(lse_shape, dtype=torch.float32)
    kernel_of(forward, runtime, q).launch(q, k, v, out, lse, dropout=dropout_from(dropout),
                                         **what_else(sinks, tensors, scalars, names),
                                         **sequences_of((cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv)))
    return out, lse


@attention_operator.register_fake
def _(q, k, v, sinks, tensors, scalars, names, forward, backward, runtime, dropout, *sequences):
    out_shape, lse_shape = output_shapes(q, v, is_heads_first(forward))
    return q.new_empty(out_shape), q.new_empty(lse_shape, dtype=torch.float32)


@torch.library.custom_op("tilewright::attention_backward", mutates_args=())
def backward_operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor,
                      d_out: torch.Tensor, d_lse: torch.Tensor | None, sinks: torch.Tensor | None,
                      tensors: list[torch.Tensor], scalars: list[float], names: str, backward: str, runtime: int,
                      dropout: list[float], cu_seqlens_q: torch.Tensor | None, cu_seqlens_kv: torch.Tensor | None,
                      seqused_q: torch.Tensor | None, seqused_kv: torch.Tensor | None
                      ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    kernel = kernel_of(backward, runtime, q)
    # A gradient may come as a broadcast or transposed view.
    if d_out.stride(-1) != 1 or any(stride % 8 for stride in d_out.stride()[:-1]) or d_out.data_ptr() % 16:
        d_out = d_out.contiguous()
    new = torch.empty if cu_seqlens_q is None else torch.zeros  # of rows of no sequence
    gradients = [new(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v)]
    d_sinks, d_bias = sink_gradients(q, sinks), bias_gradients(q, tensors, names, backward).zero_()  # it is added to
    sequences = None if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    workspace = torch.empty(kernel.workspace_size(q, k, sequences), dtype=torch.uint8, device=q.device)
    kernel.launch_backward(q, k, v, out, lse, d_out, *gradients, workspace,
                           d_lse=None if d_lse is None else d_lse.contiguous(),
                           d_sinks=None if sinks is None else d_sinks, dropout=dropout_from(dropout),
                           d_bias=d_bias if backward.endswith(BIAS_GRADIENT) else None,
                           **what_else(sinks, tensors, scalars, names),
                           **sequences_of((cu_seqlens_q, cu_seqlens_kv, seqused_q, seqused_kv)))
    return *gradients, d_sinks, d_bias


def sink_gradients(q, sinks):
    """Without sinks an empty tensor: an operator always returns the same."""
    return torch.empty(0 if sinks is None else sinks.shape[0], dtype=torch.float32, device=q.device)


def bias_gradients(q, tensors, names, backward):
    """Without a gradient of the bias an empty tensor."""
    wanted = backward.endswith(BIAS_GRADIENT)
    shape = tensors[names.split(",").index("bias")].shape if wanted else (0,)
    return torch.empty(shape, dtype=torch.float32, device=q.device)


@backward_operator.register_fake
def _(q, k, v, out, lse, d_out, d_lse, sinks, tensors, scalars, names, backward, runtime, dropout, *sequences):
    return (*(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v)), sink_gradients(q, sinks),
            bias_gradients(q, tensors, names, backward))


def keep(ctx, inputs, output):
    q, k, v, sinks, tensors, ctx.scalars, ctx.names, _, ctx.backward, ctx.runtime, ctx.dropout, *sequences = inputs
    ctx.save_for_backward(q, k, v, *output, sinks, *sequences, *tensors)
    ctx.set_materialize_grads(False)


def gradients_of(ctx, d_out, d_lse):
    q, k, v, out, lse, sinks, *rest = ctx.saved_tensors
    sequences, tensors = rest[:len(SEQUENCES)], rest[len(SEQUENCES):]
    # torch takes an empty list for one of tensors, whose gradient is a list too.
    of_tensors, no_scalars, no_dropout = ([None] * len(tensors), None if ctx.scalars else [],
                                          None if ctx.dropout else [])
    if d_out is None and d_lse is None:
        return None, None, None, None, of_tensors, no_scalars, *(None,) * 4, no_dropout, *(None,) * 4
    if d_out is None:
        d_out = torch.zeros_like(out)
    *gradients, d_sinks, d_bias = backward_operator(q, k, v, out, lse, d_out, d_lse, sinks, tensors, ctx.scalars,
                                                    ctx.names, ctx.backward, ctx.runtime, ctx.dropout, *sequences)
    d_sinks = None if sinks is None else d_sinks.to(sinks.dtype)
    if ctx.backward.endswith(BIAS_GRADIENT):
        of_tensors[ctx.names.split(",").index("bias")] = d_bias.to(q.dtype)
    return *gradients, d_sinks, of_tensors, no_scalars, *(None,) * 4, no_dropout, *(None,) * 4


attention_operator.register_autograd(gradients_of, setup_context=keep)


def attention(q, k, v, spec, runtime, sinks=None, tensors=None, scalars=None, dropout=None, sequences=(None,) * 4):
    """(output, LSE), both with gradients: for q, k, v, sinks and the bias. sequences: of layout packed, the arrays of
    SEQUENCES."""
    tensors, scalars = tensors or {}, scalars or {}
    has_bias = re.search(r"^bias:\s*true\b", spec_text(spec)[0], re.MULTILINE) is not None
    for name, tensor in tensors.items():
        if tensor.requires_grad and not (has_bias and name == "bias"):
            raise UsageError(f"tensor {name} requires a gradient, which there is none of: q, k, v, sinks and the bias "
                             "of `bias: true` have one")
    forward, backward = forward_and_backward(spec, "bias" in tensors and tensors["bias"].requires_grad)
    return attention_operator(q, k, v, sinks, list(tensors.values()), [float(x) for x in scalars.values()],
                              ",".join([*tensors, *scalars]), forward, backward, number_of(runtime), numbers_of(dropout),
                              *sequences)
