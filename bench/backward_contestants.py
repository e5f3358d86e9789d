"""Who is compared in the backward pass: ours, and torch's FA2 and cuDNN back ends. The counterpart of contestants.py, with
the same names.

A contestant starts the whole backward pass on the current stream, kernels before and after the main one included, and
returns (dq, dk, dv), each [batch, sequence, heads, head_dim].
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import contestants
from contestants import Contestant, device_of, our_runtime, tilewright


@dataclasses.dataclass
class Inputs(contestants.Inputs):
    d_out: torch.Tensor = None

    @staticmethod
    def random(cell, dtype, seed=0, device="cuda"):
        forward = contestants.Inputs.random(cell, dtype, seed, device)
        generator = torch.Generator(device).manual_seed(seed + 1)
        d_out = torch.randn(forward.q.shape, generator=generator, device=device, dtype=dtype)
        return Inputs(forward.q, forward.k, forward.v, d_out)


def ours(cell, inputs, dtype, blocks=None, deterministic=False):
    spec = {
        "head_dim": cell.head_dim,
        "dtype": dtype,
        "gqa_ratio": cell.heads // cell.kv_heads,
        "mask": "causal" if cell.causal else "none",
    }
    runtime = our_runtime(device_of(inputs.q, "q"))
    out = torch.empty_like(inputs.q)
    lse = torch.empty(cell.batch, cell.heads, cell.seqlen, dtype=torch.float32, device=out.device)
    runtime.kernel({**spec, "lse": True}).launch(inputs.q, inputs.k, inputs.v, out, lse)
    spec = {"pass": "backward", **spec}
    if deterministic:
        spec["deterministic"] = True
    if blocks:
        spec["blocks"] = dict(blocks.values)
    kernel = runtime.kernel(spec)
    # NaN: an element that the kernels leave out cannot pass for right.
    gradients = [torch.full_like(x, float("nan")) for x in (inputs.q, inputs.k, inputs.v)]
    workspace = torch.full((kernel.workspace_size(inputs.q, inputs.k),), 255, dtype=torch.uint8, device=out.device)

    def start():
        kernel.launch_backward(inputs.q, inputs.k, inputs.v, out, lse, inputs.d_out, *gradients, workspace)
        return gradients

    kept = ("target", "schedule", "compiler", "compile_ms", "registers", "spill_bytes", "shared_memory", "from", "notes")
    about = {key: kernel.info[key] for key in kept}
    name = blocks.name if blocks else "ours"
    return Contestant(name + (" deterministic" if deterministic else ""), start,
                      {"layout": "bshd", "workspace_bytes": workspace.nbytes, **about})


def sdpa(name, backend, cell, inputs):
    """One contestant for each layout in memory that torch's function may be given: the faster one will stand for it."""
    gqa = cell.heads != cell.kv_heads

    def contestant(layout, tensors, d_out):
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        with torch.enable_grad(), sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(*leaves, is_causal=cell.causal, enable_gqa=gqa)

        def start():
            gradients = torch.autograd.grad(out, leaves, d_out, retain_graph=True)
            return tuple(gradient.transpose(1, 2) for gradient in gradients)

        return Contestant(name, start, {"layout": layout})

    views = [tensor.transpose(1, 2) for tensor in (inputs.q, inputs.k, inputs.v)]
    d_out = inputs.d_out.transpose(1, 2)
    return [contestant("bshd", views, d_out),
            contestant("bhsd", [view.contiguous() for view in views], d_out.contiguous())]


def makers(names, blocks_list, with_default, dtype, fa3_extension, expressions=False):
    """As contestants.makers. FlexAttention and FA3 have no backward pass here: their names are left out, as are
    expressions."""
    table = {
        "fa2": lambda cell, inputs: sdpa("fa2", SDPBackend.FLASH_ATTENTION, cell, inputs),
        "cudnn": lambda cell, inputs: sdpa("cudnn", SDPBackend.CUDNN_ATTENTION, cell, inputs),
    }
    chosen = [(name, table[name]) for name in names if name in table]
    if with_default:
        chosen.append(("ours", lambda cell, inputs: [ours(cell, inputs, dtype)]))
        chosen.append(("ours deterministic", lambda cell, inputs: [ours(cell, inputs, dtype, deterministic=True)]))
    for blocks in blocks_list:

        def make(cell, inputs, blocks=blocks):
            if blocks.head_dim not in (None, cell.head_dim):
                return []
            return [ours(cell, inputs, dtype, blocks)]

        chosen.append((blocks.name, make))
    return chosen


def gradients_of_head(cell, q, k, v, d_out, rows, number, rounding):
    """For one KV head and the query heads that share it (q, d_out: [heads, sequence, head_dim]): dQ of some rows of the
    first of them, dK and dV of some keys, in the arithmetic of `number`. `rounding` is applied to P, O, dS and
    gradients."""
    k, v, scale = k.to(number), v.to(number), cell.head_dim**-0.5
    dk = torch.zeros(len(rows), cell.head_dim, dtype=number, device=k.device)
    dv = torch.zeros_like(dk)
    places = torch.arange(cell.seqlen, device=k.device)
    for head in range(len(q)):
        dq = torch.empty(cell.seqlen, cell.head_dim, dtype=number, device=k.device)
        for begin in range(0, cell.seqlen, 2048):
            part = slice(begin, begin + 2048)
            query, gradient = q[head, part].to(number), d_out[head, part].to(number)
            scores = query @ k.T * scale
            if cell.causal:
                scores = scores.masked_fill(places[None, :] > places[part, None], float("-inf"))
            weights = torch.softmax(scores, -1)
            d_weights = gradient @ v.T
            # Every backward pass is given the output as the forward pass rounded it.
            d_scores = weights * (d_weights - (gradient * rounding(weights @ v)).sum(-1, keepdim=True))
            weights, d_scores = rounding(weights[:, rows]), rounding(d_scores)
            dv += weights.T @ gradient
            dk += d_scores[:, rows].T @ query
            if head == 0:
                dq[part] = d_scores @ k
        if head == 0:
            first = dq[rows]
    return [rounding(x).double() for x in (first * scale, dk * scale, dv)]


class Reference:
    """As contestants.Reference, for some rows of the gradients of some heads."""

    def __init__(self, cell, inputs):
        rows = torch.tensor(contestants.reference_rows(cell), device=inputs.q.device)
        self.rows, self.ratio = rows, cell.heads // cell.kv_heads
        self.places = sorted({(b, h) for b in (0, cell.batch - 1) for h in (0, cell.kv_heads - 1)})
        self.answers = []
        errors = [[], [], []]
        for b, h in self.places:
            heads = slice(h * self.ratio, (h + 1) * self.ratio)
            q, d_out = (x[b, :, heads].transpose(0, 1) for x in (inputs.q, inputs.d_out))
            tensors = (cell, q, inputs.k[b, :, h], inputs.v[b, :, h], d_out, rows)
            exact = gradients_of_head(*tensors, torch.float64, lambda x: x)
            plain = gradients_of_head(*tensors, torch.float32, lambda x: x.to(q.dtype).float())
            self.answers.append(exact)
            for list_of, a, b_ in zip(errors, plain, exact):
                list_of.append((a - b_).abs())
        stacked = [torch.stack(list_of) for list_of in errors]
        self.allowed = [2 * e.max().item() for e in stacked]
        self.allowed_rms = [2 * e.square().mean().sqrt().item() for e in stacked]

    def check(self, gradients):
        """The figures of the gradient that is worst beside what it is allowed; NaN anywhere is wrong."""
        heads = lambda i, h: h * self.ratio if i == 0 else h  # noqa: E731
        worst = None
        for i, gradient in enumerate(gradients):
            errors = torch.stack([(gradient[b, self.rows, heads(i, h)].double() - exact[i]).abs()
                                  for (b, h), exact in zip(self.places, self.answers)])
            error, rms = errors.max().item(), errors.square().mean().sqrt().item()
            correct = (bool(torch.isfinite(gradient).all()) and error <= self.allowed[i]
                       and rms <= self.allowed_rms[i])
            verdict = dict(gradient=("dq", "dk", "dv")[i], error=error, allowed=self.allowed[i], rms_error=rms,
                           rms_allowed=self.allowed_rms[i], correct=correct)
            share = rms / self.allowed_rms[i] if correct else float("inf")
            if worst is None or not share <= worst[0]:
                worst = (share, verdict)
        return worst[1]
