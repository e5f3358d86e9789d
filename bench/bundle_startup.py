#!/usr/bin/env python3
"""Start-up from a bundle to the first launch, beside the driver's own start-up. Needs a GPU and no compiler.

    bench/bundle_startup.py kernels.twb specs/llama-3-8b-prefill.yaml [--runs 10]

Each run is a process of its own. A row says how long the driver took (cuInit and the primary context), then ours: the
runtime, the kernel, and its first launch with the wait for it; and whether NVRTC was loaded. One JSON object on stdout.
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def one_run(bundle, spec):
    sys.path.insert(0, str(ROOT / "python"))
    import tilewright
    from tilewright.library import TENSOR

    times, last = {}, time.perf_counter()

    def lap(name):
        nonlocal last
        now = time.perf_counter()
        times[name] = 1000 * (now - last)
        last = now

    cuda = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 26)) == 0
    lap("driver")
    runtime = tilewright.Runtime("cuda", bundles=[bundle], compiling=False)
    lap("runtime")
    kernel = runtime.kernel(pathlib.Path(spec))
    lap("kernel")
    info = kernel.info
    heads, rows, qk, v = 2 * info["gqa_ratio"], 256, info["head_dim_qk"], info["head_dim_v"]

    def tensor(heads, columns):
        return TENSOR.pack(memory.value, 1, 4, 1, rows, heads, columns, rows * heads * columns, heads * columns, columns, 1)

    lse = TENSOR.pack(memory.value + (1 << 25), 4, 3, 1, heads, rows, 0, heads * rows, rows, 1, 0) if info["lse"] else None
    status = kernel.start(kernel.handle, None, tensor(heads, qk), tensor(2, qk), tensor(2, v), tensor(heads, v), lse, None, None)
    assert status == 0, tilewright.library.library().tw_last_error()
    assert cuda.cuCtxSynchronize() == 0
    lap("launch")
    times["ours"] = times["runtime"] + times["kernel"] + times["launch"]
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = "nvrtc" in maps.read()
    print(json.dumps({"milliseconds": times, "from": info["from"], "nvrtc_loaded": loaded, "variants": len(info["variants"])}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("spec")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return one_run(arguments.bundle, arguments.spec)
    runs = []
    for _ in range(arguments.runs):
        child = subprocess.run([sys.executable, __file__, arguments.bundle, arguments.spec, "--one"],
                               env=dict(os.environ, TILEWRIGHT_CACHE_DIR="/nonexistent"), stdout=subprocess.PIPE, check=True)
        runs.append(json.loads(child.stdout))
    medians = {name: statistics.median(run["milliseconds"][name] for run in runs) for name in runs[0]["milliseconds"]}
    print(json.dumps({"spec": arguments.spec, "median_milliseconds": medians, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
