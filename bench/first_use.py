#!/usr/bin/env python3
"""First use of a mask or score change: from the spec, or from FlexAttention's functions, to the first result, cold.

Every measurement has a process and empty caches of its own. The process first imports torch, makes the inputs and runs a
matrix product, which are not counted. In the same process the next mask follows, which is what a compiler that is warm already
takes. One JSON file.

    python3 bench/first_use.py --out bench/results/h200-first-use.json
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
CONTESTANTS = ("ours", "flex")


def measure(contestant, cells):
    """In the child: milliseconds for each of the cells, one after the other."""
    import contestants
    import torch

    torch.set_grad_enabled(False)
    inputs = [contestants.Inputs.random(cell, torch.bfloat16) for cell in cells]
    (torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")).sum().item()
    found = []
    for cell, tensors in zip(cells, inputs):
        torch.cuda.synchronize()
        began = time.perf_counter()
        made = contestants.ours(cell, tensors, "bf16") if contestant == "ours" else contestants.flex(cell, tensors)
        made.start()
        torch.cuda.synchronize()
        found.append(1000 * (time.perf_counter() - began))
    return found


def in_fresh_process(contestant, cells):
    with tempfile.TemporaryDirectory() as caches:
        names = ("TILEWRIGHT_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
        environment = os.environ | {name: f"{caches}/{name.lower()}" for name in names}
        command = [sys.executable, __file__, "--child", contestant, "--head-dim", str(cells[0].head_dim),
                   "--seqlen", str(cells[0].seqlen), "--masks", ",".join(cell.mask for cell in cells)]
        child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    if child.returncode:
        sys.exit(f"{contestant}, {cells[0].name} failed:\n{child.stderr}")
    return json.loads(child.stdout.splitlines()[-1])


def main():
    import cells as shapes

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--masks", default="causal,window,softcap,alibi,document,prefix")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--seqlen", type=int, default=4096)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--child", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    heads = 2048 // options.head_dim
    batch = max(1, 16384 // options.seqlen)
    cells = [shapes.Cell(options.head_dim, heads, heads, options.seqlen, batch, mask) for mask in options.masks.split(",")]
    if options.child:
        print(json.dumps(measure(options.child, cells)))
        return
    import torch

    result = {"when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "device": torch.cuda.get_device_name(), "torch": torch.__version__, "cores": os.cpu_count(), "cells": []}
    for place, cell in enumerate(cells):
        following = cells[(place + 1) % len(cells)]
        entry = {"cell": cell.name, "next": following.name}
        for contestant in CONTESTANTS:
            entry[contestant], entry[contestant + "_next"] = in_fresh_process(contestant, [cell, following])
        result["cells"].append(entry)
        print(f"{cell.name}: ours {entry['ours']:.0f} ms, FlexAttention {entry['flex']:.0f} ms, {entry['flex'] / entry['ours']:.1f} x; "
              f"then {following.mask}: {entry['ours_next']:.0f} ms, {entry['flex_next']:.0f} ms", flush=True)
    for key in ("", "_next"):
        ratios = [entry["flex" + key] / entry["ours" + key] for entry in result["cells"]]
        result["ratio" + key] = {"least": min(ratios), "geometric_mean": statistics.geometric_mean(ratios)}
    print(json.dumps({key: value for key, value in result.items() if key.startswith("ratio")}))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
