"""attention(): from tensors to the answer in one call."""

import sys

from .errors import UsageError
from .runtime import default_runtime
from .tensors import device_of, dtype_of, kind_of


def attention(q, k, v, spec=None, *, mask=None, window=None, softcap=None, scale=None, layout=None, blocks=None,
              cu_seqlens_q=None, cu_seqlens_kv=None, seqused_q=None, seqused_kv=None, sinks=None,
              block_rows=None, block_columns=None, scalars=None, tensors=None, dropout=None, out=None,
              return_lse=False, runtime=None):
    """softmax(scale · q kᵀ, masked) v, by a kernel made for exactly this problem.

    q, k, v: torch CUDA tensors (zero copy, torch's current stream), or NumPy arrays and torch CPU tensors, which go
    through the simulator; fp16 or bf16 (NumPy: ml_dtypes.bfloat16, or the bits as uint16). [batch, sequence, heads,
    head_dim] for layout "bshd" (default), [batch, heads, sequence, head_dim] for "bhsd". Any strides, but a contiguous
    last dimension; k and v may have fewer heads.

    What is computed comes from `spec` (the path of a YAML file, YAML text, or a dict), or from keywords:
      mask: "none" (default), "causal" (the last query sees the last key) or "causal_top_left"
      window: (left, right), keys seen before and after a query's own position; None for an unlimited side
      softcap: c, for c · tanh(score / c)
      scale: the softmax scale, default 1/sqrt(head_dim); with a spec only if it says `softmax_scale: launch`
      layout, blocks: as in a spec

    Sequences of different lengths lie one behind the other with layout "packed": q, k and v are [rows of all
    sequences, heads, head_dim], and cu_seqlens_q and cu_seqlens_kv (int32, one number more than sequences, where q, k
    and v are; cu_seqlens_kv defaults to cu_seqlens_q) say where sequences begin. Giving them asks for that layout.
    seqused_q and seqused_kv, optional: how many rows of each sequence count. There is no longest length to give: the
    kernel reads the lengths. Rows of no sequence are not written. lse is [heads, rows].

    block_rows, block_columns: the list of blocks for a mask with blocks, as in mask={"blocks": {"m": 64, "n": 64}} or
    mask={"blocks": {"m": 64, "n": 64}, "with": "causal"}. Block i of queries sees the blocks of keys
    block_columns[block_rows[b, h, i]] to block_columns[block_rows[b, h, i + 1] - 1]; block_rows is [batch or 1, heads
    or 1, blocks of queries + 1], both are int32.

    sinks: one logit for each query head, fp32 or of q's type, that joins the softmax's denominator.

    scalars, tensors: dicts of what the spec's expressions take, by name; `bias` for `bias: true`.

    dropout: (rate, seed, offset). Each probability is dropped with the rate, 0 <= rate < 1, and the others are scaled by
    1 / (1 - rate); the same seed and offset (integers below 2^64) drop the same places, see dropout_mask(). The backward
    pass drops what the forward pass did.

    Returns the output (`out`, if given), or (output, lse) with return_lse; lse is fp32, [batch, heads, sequence],
    natural logarithm. With a spec, return_lse needs its `lse: true`. Kernels are kept per device and spec. Raises the
    exceptions of tilewright.errors.

    Where torch records gradients for q, k, v, sinks or the bias of `bias: true`, output and lse have them, by the
    backward kernel of the same spec; a scale given at launch (`softmax_scale: launch`) and `out` do not go together with
    that. Scalars and other tensors have no gradients.
    """
    if spec is None:
        if cu_seqlens_q is not None and layout is None:
            layout = "packed"
        spec = spec_from_keywords(q, k, v, mask, window, softcap, scale, layout, blocks, return_lse, sinks is not None,
                                  dropout is not None)
        scale = None
    else:
        fixed = dict(mask=mask, window=window, softcap=softcap, layout=layout, blocks=blocks)
        given = [name for name, value in fixed.items() if value is not None]
        if given:
            raise UsageError(
                f"{', '.join(given)} given together with spec=: what is computed is the spec's, and cannot change "
                "at launch; write it into the spec, or leave spec out"
            )
    if wants_gradients(q, k, v, *(tensors or {}).values(), *([] if sinks is None else [sinks])):
        if any(x is not None for x in (out, scale, block_rows, block_columns)):
            raise UsageError("out, a launch-time scale and lists of blocks cannot be given where gradients are recorded")
        from . import autograd

        out, lse = autograd.attention(
            q, k, v, spec, runtime, sinks, tensors, scalars, dropout,
            [cu_seqlens_q, cu_seqlens_q if cu_seqlens_kv is None else cu_seqlens_kv, seqused_q, seqused_kv])
        return (out, lse) if return_lse else out
    runtime = runtime or default_runtime(*device_of(q, "q"))
    kernel = runtime.kernel(spec)
    info = kernel.info
    if return_lse and not info["lse"]:
        raise UsageError("return_lse=True, but the spec does not say `lse: true`")

    shape = tuple(q.shape)
    rank = 3 if kernel.packed else 4
    if len(shape) != rank:
        raise UsageError(f"q has shape {shape}; expected {rank} dimensions")
    if out is None:
        out = kind_of(q, "q").empty(q, shape[:-1] + (info["head_dim_v"],), info["dtype_out"])
    lse = None
    if info["lse"]:
        if kernel.packed:
            rows = (shape[1], shape[0])
        else:
            rows = shape[:3] if kernel.heads_first else (shape[0], shape[2], shape[1])
        lse = kind_of(q, "q").empty(q, rows, "fp32")
    further = dict(cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv, seqused_q=seqused_q, seqused_kv=seqused_kv,
                   sinks=sinks, block_rows=block_rows, block_columns=block_columns)
    if kernel.packed and cu_seqlens_kv is None:
        further["cu_seqlens_kv"] = cu_seqlens_q
    further = {name: tensor for name, tensor in further.items() if tensor is not None}
    kernel.launch(q, k, v, out, lse, scale, scalars=scalars, tensors=tensors, dropout=dropout, **further)
    return (out, lse) if return_lse else out


def wants_gradients(*tensors):
    """Whether torch records what is done to any of them, or compiles it: then torch must see an operator."""
    torch = sys.modules.get("torch")
    if torch is None or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return False
    if torch.compiler.is_compiling():
        return True
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def spec_from_keywords(q, k, v, mask, window, softcap, scale, layout, blocks, lse, sinks, dropout=False):
    """The spec that the tensors and keywords describe, as a dict."""
    if layout not in (None, "bshd", "bhsd", "packed"):
        raise UsageError(f"layout '{layout}': expected bshd, bhsd or packed")
    rank = 3 if layout == "packed" else 4
    for tensor, name in ((q, "q"), (k, "k"), (v, "v")):
        device_of(tensor, name)
        if len(tensor.shape) != rank:
            raise UsageError(f"{name} has shape {tuple(tensor.shape)}; expected {rank} dimensions")
    if mask is not None and window is not None:
        raise UsageError("mask and window are both given; a window is a mask of its own, so give one of them")

    heads_at = 1 if layout in ("bhsd", "packed") else 2
    heads, kv_heads = q.shape[heads_at], k.shape[heads_at]
    if kv_heads == 0 or heads % kv_heads:
        raise UsageError(f"{heads} query heads cannot be shared out among {kv_heads} KV heads")
    if dtype_of(k, "k") != dtype_of(q, "q") or dtype_of(v, "v") != dtype_of(q, "q"):
        raise UsageError(f"q holds {q.dtype}, k {k.dtype}, v {v.dtype}; expected one type")

    qk, dv = q.shape[-1], v.shape[-1]
    spec = {"head_dim": qk if qk == dv else {"qk": qk, "v": dv}, "dtype": dtype_of(q, "q"),
            "gqa_ratio": max(1, heads // kv_heads)}
    if window is not None:
        if not isinstance(window, (tuple, list)) or len(window) != 2:
            raise UsageError(f"window {window!r}: expected (left, right)")
        spec["mask"] = {"window": [float("inf") if side is None else side for side in window]}
    elif mask is not None:
        spec["mask"] = mask
    if softcap is not None:
        spec["softcap"] = softcap
    if scale is not None:
        spec["softmax_scale"] = scale
    if layout is not None:
        spec["layout"] = layout
    if blocks is not None:
        spec["blocks"] = blocks
    if lse:
        spec["lse"] = True
    if sinks:
        spec["sinks"] = True
    if dropout:
        spec["dropout"] = True
    return spec
