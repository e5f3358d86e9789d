"""What is compared and how numbers are summed up. No torch, no GPU: everything here is plain arithmetic and text."""

import dataclasses
import itertools
import math
import statistics

# Dense bf16 tensor-core TFLOP/s by the makers' data sheets; the first name found in the device's name counts.
DATASHEET_TFLOPS = {"H200": 989.4, "H100": 989.4, "GH200": 989.4, "A100": 312.0, "B200": 2250.0, "L40S": 362.0}


# Masks and changes of scores: causal beneath all but full. window: 1024 keys, the query's own among them; softcap: 50;
# alibi: the standard slopes; document: DOCUMENTS; prefix: the first quarter is seen by all.
MASKS = ("full", "causal", "window", "softcap", "alibi", "document", "prefix")
WINDOW, SOFTCAP = 1024, 50.0
DOCUMENTS = (1, 5, 2, 8, 3, 7, 2, 4)  # lengths of the documents of a sequence, in 32nds of it


def document_ends(seqlen):
    """Where each document ends."""
    return [seqlen * end // 32 for end in itertools.accumulate(DOCUMENTS)]


def prefix_length(seqlen):
    return seqlen // 4


def visible_pairs(mask, seqlen):
    """Of queries and keys of one head."""
    if mask == "full":
        return seqlen**2
    if mask == "window":
        reach = min(WINDOW, seqlen)
        return seqlen * reach - reach**2 / 2
    if mask == "document":
        ends = document_ends(seqlen)
        return sum((end - begin) ** 2 / 2 for begin, end in zip([0, *ends], ends))
    if mask == "prefix":
        return (seqlen**2 + prefix_length(seqlen) ** 2) / 2
    return seqlen**2 / 2


@dataclasses.dataclass(frozen=True)
class Cell:
    """One problem: self-attention of `batch` sequences of `seqlen` tokens."""

    head_dim: int
    heads: int
    kv_heads: int
    seqlen: int
    batch: int
    mask: str  # one of MASKS

    @property
    def causal(self):
        return self.mask == "causal"

    @property
    def name(self):
        return f"D{self.head_dim} S{self.seqlen} {self.mask}"

    @property
    def flops(self):
        """Of the two matrix products, over the visible pairs; a causal mask counts as half of all."""
        return 4 * self.batch * self.heads * visible_pairs(self.mask, self.seqlen) * self.head_dim


def make_cells(head_dims, seqlens, masks, tokens=16384, width=2048, gqa_ratio=1):
    """Every combination; batch · seqlen = tokens and heads · head_dim = width."""
    cells = []
    for head_dim, seqlen, mask in itertools.product(head_dims, seqlens, masks):
        if mask not in MASKS:
            raise ValueError(f"mask '{mask}': expected one of {', '.join(MASKS)}")
        heads = width // head_dim
        if heads * head_dim != width or heads % gqa_ratio:
            raise ValueError(f"width {width} does not divide into heads of {head_dim} in groups of {gqa_ratio}")
        if tokens % seqlen:
            raise ValueError(f"{tokens} tokens do not divide into sequences of {seqlen}")
        cells.append(Cell(head_dim, heads, heads // gqa_ratio, seqlen, tokens // seqlen, mask))
    return cells


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A schedule of ours to try, for one head dim or (None) for all."""

    head_dim: int | None
    values: tuple  # of (key, value): the spec's `blocks:`

    @property
    def name(self):
        return "ours[" + ",".join(f"{key}={value}" for key, value in self.values) + "]"


def parse_blocks(text):
    """Reads "m=128,n=64,warps=4,stages=2", with "d128:" before it for head dim 128 alone."""
    head_dim = None
    head, colon, rest = text.partition(":")
    if colon:
        if not (head.startswith("d") and head[1:].isdigit()):
            raise ValueError(f"blocks '{text}': before the colon stands a head dim, as in d128:m=128,n=64")
        head_dim, text = int(head[1:]), rest
    values = []
    for item in text.split(","):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key:
            raise ValueError(f"blocks '{text}': expected key=value, got '{item}'")
        if value in ("true", "false"):
            values.append((key, value == "true"))
        elif value.isdigit():
            values.append((key, int(value)))
        elif key == "family":
            values.append((key, value))
        else:
            raise ValueError(f"blocks '{text}': '{value}' is neither a number nor true or false")
    return Blocks(head_dim, tuple(values))


def median_and_deviation(samples):
    """The median, and the median absolute deviation from it."""
    middle = statistics.median(samples)
    return middle, statistics.median(abs(sample - middle) for sample in samples)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def peak_tflops(device_name):
    """None for a device that is not in the table."""
    return next((peak for name, peak in DATASHEET_TFLOPS.items() if name in device_name), None)


def summarise(results):
    """How each contestant of ours compares with each peer: {ours: {peer: {cells, geomean, least, least_in}}}, where a
    ratio over 1 means that ours is faster. `results`: the cells of the JSON file."""
    ratios = {}
    for cell in results:
        times = {c["name"]: c["milliseconds"] for c in cell["contestants"] if c.get("milliseconds")}
        for ours, peer in itertools.product(times, times):
            if ours.startswith("ours") and not peer.startswith("ours"):
                ratios.setdefault(ours, {}).setdefault(peer, []).append((times[peer] / times[ours], cell["name"]))
    return {
        ours: {
            peer: {
                "cells": len(values),
                "geomean": geometric_mean([ratio for ratio, _ in values]),
                "least": min(values)[0],
                "least_in": min(values)[1],
            }
            for peer, values in peers.items()
        }
        for ours, peers in ratios.items()
    }


def format_cell(cell):
    """The lines that show one cell of the JSON file, fastest contestant first."""
    lines = [cell["name"]]
    for c in sorted(cell["contestants"], key=lambda c: c.get("milliseconds") or math.inf):
        if c.get("failure"):
            lines.append(f"  {c['name']:34s} failed: {c['failure'].splitlines()[0][:120]}")
            continue
        peak = f"{c['percent_of_peak']:5.1f} %" if c.get("percent_of_peak") else "      "
        ratio = f"{c['speed_over_fa2']:6.3f} x fa2" if c.get("speed_over_fa2") else ""
        lines.append(
            f"  {c['name']:34s} {c['milliseconds']:8.4f} ms ±{c['deviation_milliseconds']:7.4f} "
            f"{c['tflops']:7.1f} TFLOP/s {peak} {ratio}"
        )
    return "\n".join(lines)


def format_summary(summary):
    lines = []
    for ours, peers in summary.items():
        for peer, s in peers.items():
            lines.append(
                f"{ours} over {peer}: geometric mean {s['geomean']:.3f} in {s['cells']} cells, "
                f"least {s['least']:.3f} ({s['least_in']})"
            )
    return "\n".join(lines)
