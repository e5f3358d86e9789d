"""What the Python tests share: a simulator runtime with a cache of its own, the fp64 reference and the tolerance."""

import atexit
import functools
import math
import pathlib
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import tilewright  # noqa: E402


@functools.cache
def simulator():
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return tilewright.Runtime("simulator", cache_directory=folder.name)


def to_bf16(x):
    """The bits of bf16, rounded to nearest even, as uint16."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def values(x):
    """fp64 of a float16 array or of bf16 bits."""
    return (from_bf16(x) if x.dtype == np.uint16 else x).astype(np.float64)


def rounded(x, like):
    """x rounded to the element type of `like`, as fp64."""
    return values(to_bf16(x) if like.dtype == np.uint16 else x.astype(np.float16))


def visible(rows, keys, mask="none", window=None):
    """[rows, keys]: whether a query sees a key."""
    i, j = np.arange(rows)[:, None], np.arange(keys)[None, :]
    shift = keys - rows
    if window:
        left, right = (math.inf if side is None else side for side in window)
        return (j >= i + shift - left) & (j <= i + shift + right)
    return {"none": j >= 0, "causal": j <= i + shift, "causal_top_left": j <= i}[mask] & (i >= 0)


def reference(q, k, v, mask="none", window=None, softcap=None, scale=None, plain=False):
    """(out [b, s, h, d], lse [b, h, s]) in fp64, of the stored values; with `plain`, P and the output are rounded to the
    element type, as a straightforward implementation would do. All tensors [batch, sequence, heads, head_dim]."""
    ratio = q.shape[2] // k.shape[2]
    scores = np.einsum("bqhd,bkhd->bhqk", values(q), np.repeat(values(k), ratio, 2)) * (scale or q.shape[3] ** -0.5)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(visible(q.shape[1], k.shape[1], mask, window), scores, -np.inf)
    maximum = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(maximum), 0, maximum))
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    if plain:
        weights = rounded(weights, q)
    out = np.einsum("bhqk,bkhd->bqhd", weights, np.repeat(values(v), ratio, 2))
    with np.errstate(divide="ignore"):
        lse = np.log(total) + np.where(np.isinf(maximum), 0, maximum)
    return rounded(out, q) if plain else out, lse[..., 0]


def assert_matches(test, out, q, k, v, lse=None, **how):
    """`out` is as close to fp64 as twice a plain implementation; rows that see no key are exactly 0 with LSE -inf."""
    exact, exact_lse = reference(q, k, v, **how)
    plain, _ = reference(q, k, v, plain=True, **how)
    error, allowed = (np.abs(values(out) - exact), np.abs(plain - exact))
    test.assertTrue(np.isfinite(values(out)).all())
    test.assertLessEqual(error.max(), 2 * allowed.max())
    test.assertLessEqual(np.sqrt((error**2).mean()), 2 * np.sqrt((allowed**2).mean()))
    unseen = np.isneginf(exact_lse)
    test.assertTrue((values(out).transpose(0, 2, 1, 3)[unseen] == 0).all())
    if lse is not None:
        test.assertEqual(lse.dtype, np.float32)
        test.assertTrue((np.isneginf(lse) == unseen).all())
        # fp32 sums of fp32 products: a few roundings of the largest score.
        largest = max(1.0, np.abs(exact_lse[~unseen]).max(initial=0))
        test.assertLess(np.abs(lse[~unseen] - exact_lse[~unseen]).max(initial=0), 8 * 2**-23 * largest * 4)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)
