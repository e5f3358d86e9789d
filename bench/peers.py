#!/usr/bin/env python3
"""Times our kernels beside torch's FA2 and cuDNN back ends and FlexAttention, in one run on one GPU.

    bench/peers.py                                      the whole table, the default schedules
    bench/peers.py --head-dims 128 --seqlens 4096 --peers fa2 \\
        --blocks m=128,n=64,warps=4,stages=2 --blocks m=64,n=64,warps=4,stages=3       schedules against each other
    bench/peers.py --pass backward --peers fa2,cudnn    the backward pass: all its kernels, and our deterministic mode

Every contestant must first be right on part of the output against fp64. Then all of them are timed in interleaved rounds,
in a new random order each round, with cold L2 before every launch; a figure is the median of its rounds, ± the median
absolute deviation. A table goes to stdout, everything to a JSON file. Compare ratios inside one run, never figures of two.
Exit code: 0; 1 if one of ours failed or gave a wrong answer; 3 without torch or a GPU; 5 if the device failed under way.
"""

import argparse
import datetime
import json
import pathlib
import random
import subprocess
import sys
import time

from cells import MASKS, format_cell, format_summary, make_cells, median_and_deviation, parse_blocks, peak_tflops, summarise

HERE = pathlib.Path(__file__).resolve().parent
PEERS = ("fa2", "cudnn", "flex", "fa3")


def numbers(text):
    return [int(item) for item in text.split(",")]


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pass", dest="direction", choices=("forward", "backward"), default="forward")
    parser.add_argument("--head-dims", type=numbers, default=[64, 128, 256], metavar="64,128,256")
    parser.add_argument("--seqlens", type=numbers, default=[1024, 4096, 16384], metavar="1024,4096,16384")
    parser.add_argument("--masks", type=lambda s: s.split(","), default=["full", "causal"], metavar="full,causal",
                        help=", ".join(MASKS))
    parser.add_argument("--tokens", type=int, default=16384, help="batch times sequence length")
    parser.add_argument("--width", type=int, default=2048, help="query heads times head dim")
    parser.add_argument("--gqa-ratio", type=int, default=1)
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--peers", type=lambda s: [p for p in s.split(",") if p], default=["fa2", "cudnn", "flex"],
                        metavar=",".join(PEERS), help="\"\" for none; fa3 needs its module, or --fa3")
    parser.add_argument("--fa3", metavar="FILE", help="the shared object with FA3's torch operators")
    parser.add_argument("--blocks", action="append", type=parse_blocks, default=[], metavar="[dD:]KEY=VALUE,…",
                        help="one more schedule of ours, for head dim D alone if that is given; may be repeated")
    parser.add_argument("--expressions", action="store_true",
                        help="ours once more with mask and score written out as expressions, where they need not be")
    parser.add_argument("--no-default", action="store_true", help="leave our default schedule out")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--milliseconds", type=float, default=15, help="kernel time per contestant and round")
    parser.add_argument("--seed", type=int, default=0, help="of the order and the data")
    parser.add_argument("--peak", type=float, help="TFLOP/s of the device, where its data sheet is not known here")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="the JSON file (default: bench/results/…)")
    parser.add_argument("--list", action="store_true", help="print the cells and stop; needs no GPU")
    options = parser.parse_args(argv)
    unknown = set(options.peers) - set(PEERS)
    if unknown:
        parser.error(f"--peers: unknown {', '.join(sorted(unknown))}; expected some of {', '.join(PEERS)}")
    if options.fa3 and "fa3" not in options.peers:
        options.peers.append("fa3")
    try:
        options.cells = make_cells(options.head_dims, options.seqlens, options.masks, options.tokens, options.width,
                                   options.gqa_ratio)
    except ValueError as error:
        parser.error(str(error))
    return options


def progress(text):
    print(text, file=sys.stderr, flush=True)


class GpuState:
    """Clocks, power and temperature as nvidia-smi reports them, read while the GPU is busy."""

    FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "driver_version")

    def __init__(self, index=0):
        command = ["nvidia-smi", f"--id={index}", "--format=csv,noheader,nounits", "--query-gpu=" + ",".join(self.FIELDS)]
        try:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            self.process = None

    def read(self):
        """{} where nvidia-smi is missing or slow."""
        if self.process is None:
            return {}
        try:
            text, _ = self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return {}
        values = [value.strip() for value in text.strip().splitlines()[0].split(",")] if text.strip() else []
        return dict(zip(self.FIELDS, values))


class Timer:
    """Times single launches with events, L2 flushed before each. The flush also hides the host's part of a launch."""

    def __init__(self, torch):
        self.torch = torch
        # More than the L2 of any GPU to date.
        self.flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")

    def sample(self, start, launches):
        """The median time of `launches` launches, in milliseconds."""
        event = self.torch.cuda.Event
        events = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(launches)]
        self.flush.zero_()  # once more at first, so that the host is ahead of the device from the start
        for begin, end in events:
            self.flush.zero_()
            begin.record()
            start()
            end.record()
        self.torch.cuda.synchronize()
        times, _ = median_and_deviation([begin.elapsed_time(end) for begin, end in events])
        return times


class DeviceLost(Exception):
    """The device answers no more: an illegal address, say, which ends the process's CUDA context."""


def first_right(torch, timer, contestants, reference):
    """The fastest of the contestants that stand for one (layouts of the same peer), checked. Raises what it raised."""
    best, best_time, checked = None, None, {}
    for contestant in contestants:
        verdict = reference.check(contestant.start())
        torch.cuda.synchronize()
        checked[contestant.about["layout"]] = verdict
        if not verdict["correct"]:
            raise ValueError(f"wrong answer ({contestant.about['layout']}): error {verdict['error']:.3g}, "
                             f"allowed {verdict['allowed']:.3g}; rms {verdict['rms_error']:.3g}, "
                             f"allowed {verdict['rms_allowed']:.3g}")
        time_ms = timer.sample(contestant.start, 3)
        if best is None or time_ms < best_time:
            best, best_time = contestant, time_ms
    return best, best_time, checked[best.about["layout"]]


def contestants_of(options):
    """The module of the pass's contestants; both have the same names."""
    if options.direction == "backward":
        import backward_contestants

        return backward_contestants
    import contestants

    return contestants


def run_cell(torch, timer, cell, makers, options, peak, shuffle):
    """One cell of the JSON file."""
    field = contestants_of(options)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[options.dtype]
    inputs = field.Inputs.random(cell, dtype, options.seed)
    reference = field.Reference(cell, inputs)
    entries, racing = [], []
    for name, make in makers:
        entry = {"name": name}
        try:
            began = time.perf_counter()
            candidates = make(cell, inputs)
            if not candidates:
                continue
            candidates[0].start()
            torch.cuda.synchronize()
            # From the spec, or the functions, to the first result; a compile is in it unless a cache had it.
            entry["first_use_milliseconds"] = 1000 * (time.perf_counter() - began)
            contestant, milliseconds, verdict = first_right(torch, timer, candidates, reference)
            entry.update(contestant.about, **verdict)
            launches = max(1, min(50, round(options.milliseconds / milliseconds)))
            racing.append((entry, contestant, launches))
        except Exception as error:  # one contestant's failure must not end the race
            entry["failure"] = f"{type(error).__name__}: {error}"
            progress(f"  {name} failed: {entry['failure']}")
            still_there(torch)
        entries.append(entry)

    samples = {entry["name"]: [] for entry, _, _ in racing}
    state = {}
    for number in range(options.rounds):
        watch = GpuState(torch.cuda.current_device()) if number == options.rounds // 2 else None
        shuffle.shuffle(racing)
        for entry, contestant, launches in list(racing):
            try:
                samples[entry["name"]].append(timer.sample(contestant.start, launches))
            except Exception as error:
                entry["failure"] = f"in round {number}: {type(error).__name__}: {error}"
                progress(f"  {entry['name']} failed {entry['failure']}")
                still_there(torch)
                racing = [runner for runner in racing if runner[0] is not entry]
        if watch:
            state = watch.read()
    # Five products of the backward pass for two of the forward.
    flops = cell.flops * (2.5 if options.direction == "backward" else 1)
    fa2 = median_and_deviation(samples["fa2"])[0] if samples.get("fa2") else None
    for entry, _, launches in racing:
        middle, deviation = median_and_deviation(samples[entry["name"]])
        tflops = flops / middle / 1e9
        entry.update(milliseconds=middle, deviation_milliseconds=deviation, launches_per_round=launches,
                     rounds=samples[entry["name"]], tflops=tflops)
        if peak:
            entry["percent_of_peak"] = 100 * tflops / peak
        if fa2:
            entry["speed_over_fa2"] = fa2 / middle
    return {
        "name": cell.name, "head_dim": cell.head_dim, "heads": cell.heads, "kv_heads": cell.kv_heads,
        "seqlen": cell.seqlen, "batch": cell.batch, "mask": cell.mask, "causal": cell.causal, "flops": flops, "gpu": state,
        "contestants": entries,
    }


def still_there(torch):
    try:
        torch.cuda.synchronize()
    except Exception as error:
        raise DeviceLost(str(error)) from error


def gemm_tflops(torch, timer, dtype):
    """What the tensor cores reach here and now in a large matrix product."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
    timer.sample(lambda: a @ b, 5)
    return 2 * 8192**3 / timer.sample(lambda: a @ b, 15) / 1e9


def revision():
    """The commit of the checkout, if it is one."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def main(argv=None):
    options = arguments(argv)
    if options.list:
        for cell in options.cells:
            print(f"{cell.name}: batch {cell.batch}, heads {cell.heads}/{cell.kv_heads}, {cell.flops / 1e9:.0f} GFLOP")
        return 0
    try:
        import torch
    except ImportError as error:
        progress(f"error: torch is needed: {error}")
        return 3
    if not torch.cuda.is_available():
        progress("error: no CUDA device")
        return 3
    field = contestants_of(options)
    started = time.monotonic()
    torch.set_grad_enabled(False)
    timer = Timer(torch)
    device = torch.cuda.get_device_name()
    peak = options.peak or peak_tflops(device)
    makers = field.makers(options.peers, options.blocks, not options.no_default, options.dtype, options.fa3,
                          options.expressions)
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:
        triton_version = None
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[options.dtype]
    result = {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "revision": revision(), "tilewright": field.tilewright.version(), "device": device,
        "driver": GpuState().read().get("driver_version"), "cuda": torch.version.cuda, "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(), "triton": triton_version, "python": sys.version.split()[0],
        "pass": options.direction, "dtype": options.dtype, "rounds": options.rounds, "milliseconds_per_round": options.milliseconds,
        "seed": options.seed, "datasheet_tflops": peak, "gemm_8192_tflops": gemm_tflops(torch, timer, dtype),
        "cells": [],
    }
    day = result["when"][:10]
    out = options.out or HERE / "results" / f"{day}-{device.replace(' ', '-').lower()}-{options.direction}-{options.dtype}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    print(f"{device}, driver {result['driver']}, torch {result['torch']}, cuDNN {result['cudnn']}, "
          f"{options.dtype} matrix product {result['gemm_8192_tflops']:.0f} TFLOP/s", flush=True)

    shuffle = random.Random(options.seed)
    code = 0
    for number, cell in enumerate(options.cells, 1):
        progress(f"[{number}/{len(options.cells)}] {cell.name}  ({time.monotonic() - started:.0f} s)")
        try:
            result["cells"].append(run_cell(torch, timer, cell, makers, options, peak, shuffle))
        except DeviceLost as error:
            result["device_lost"] = f"{cell.name}: {error}"
            progress(f"error: the device failed in {cell.name}: {error}")
            code = 5
            break
        print(format_cell(result["cells"][-1]), flush=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
    result["summary"] = summarise(result["cells"])
    result["seconds"] = time.monotonic() - started
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(format_summary(result["summary"]))
    progress(f"written: {out} ({result['seconds']:.0f} s)")
    failed = [c for cell in result["cells"] for c in cell["contestants"]
              if c["name"].startswith("ours") and c.get("failure")]
    return code or (1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
