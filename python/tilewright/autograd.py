"""attention() for torch tensors that need gradients: operators of torch's own library, so that autograd and torch.compile
take them as they are. Imported on first use; needs torch.

A spec travels as YAML text: operators take text, and kernels are kept by it.
"""

import re

import torch

from .runtime import default_runtime, spec_text
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


def without_keys(text, keys):
    """A spec's text without some of its keys, and without what is indented below them."""
    kept, dropping = [], False
    for line in text.splitlines():
        if line[:1] not in ("", " ", "\t", "#"):
            dropping = line.split(":")[0] in keys
        if not dropping:
            kept.append(line + "\n")
    return "".join(kept)


def forward_and_backward(spec):
    """The texts of the spec with LSE, and of its backward pass, whose schedule is its own."""
    text = without_keys(spec_text(spec)[0], ("name", "pass", "lse"))
    return f"pass: forward\n{text}lse: true\n", f"pass: backward\n{without_keys(text, ('blocks',))}lse: true\n"


def output_shapes(q, v, heads_first):
    """Of the output and of LSE."""
    batch, rows, heads = (q.shape[0], q.shape[2], q.shape[1]) if heads_first else q.shape[:3]
    return (*q.shape[:3], v.shape[3]), (batch, heads, rows)


def is_heads_first(spec):
    return re.search(r"^layout:\s*bhsd\b", spec, re.MULTILINE) is not None


@torch.library.custom_op("tilewright::attention", mutates_args=())
def attention_operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, forward: str, backward: str,
                       runtime: int) -> tuple[torch.Tensor, torch.Tensor]:
    out_shape, lse_shape = output_shapes(q, v, is_heads_first(forward))
    out, lse = q.new_empty(out_shape), q.new_empty(lse_shape, dtype=torch.float32)
    kernel_of(forward, runtime, q).launch(q, k, v, out, lse)
    return out, lse


@attention_operator.register_fake
def _(q, k, v, forward, backward, runtime):
    out_shape, lse_shape = output_shapes(q, v, is_heads_first(forward))
    return q.new_empty(out_shape), q.new_empty(lse_shape, dtype=torch.float32)


@torch.library.custom_op("tilewright::attention_backward", mutates_args=())
def backward_operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor,
                      d_out: torch.Tensor, d_lse: torch.Tensor | None, backward: str,
                      runtime: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kernel = kernel_of(backward, runtime, q)
    # A gradient may come as a broadcast or transposed view.
    if d_out.stride(3) != 1 or any(stride % 8 for stride in d_out.stride()[:3]) or d_out.data_ptr() % 16:
        d_out = d_out.contiguous()
    gradients = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v)]
    workspace = torch.empty(kernel.workspace_size(q, k), dtype=torch.uint8, device=q.device)
    kernel.launch_backward(q, k, v, out, lse, d_out, *gradients, workspace,
                           d_lse=None if d_lse is None else d_lse.contiguous())
    return tuple(gradients)


@backward_operator.register_fake
def _(q, k, v, out, lse, d_out, d_lse, backward, runtime):
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))


def keep(ctx, inputs, output):
    q, k, v, _, ctx.backward, ctx.runtime = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def gradients_of(ctx, d_out, d_lse):
    q, k, v, out, lse = ctx.saved_tensors
    if d_out is None and d_lse is None:
        return (None,) * 6
    if d_out is None:
        d_out = torch.zeros_like(out)
    gradients = backward_operator(q, k, v, out, lse, d_out, d_lse, ctx.backward, ctx.runtime)
    return *gradients, None, None, None


attention_operator.register_autograd(gradients_of, setup_context=keep)


def attention(q, k, v, spec, runtime):
    """(output, LSE), both with gradients."""
    forward, backward = forward_and_backward(spec)
    return attention_operator(q, k, v, forward, backward, number_of(runtime))
