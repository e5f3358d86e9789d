"""Gradients of tilewright.attention on torch tensors: CPU tensors through the simulator, CUDA tensors on the GPU. Skipped
without torch (exit code 77)."""

import sys
import unittest

from support import simulator, tilewright

try:
    import torch
except ImportError:
    torch = None


def tensors(device, rows=40, keys=70, heads=4, kv_heads=2, dim=32, dtype=None):
    generator = torch.Generator(device).manual_seed(0)

    def tensor(length, count):
        values = torch.randn((2, length, count, dim), generator=generator, device=device)
        return values.to(dtype or torch.bfloat16)

    return tensor(rows, heads), tensor(keys, kv_heads), tensor(keys, kv_heads), tensor(rows, heads)


def dense(q, k, v, causal=True):
    """(output, LSE) by torch alone; everything [batch, sequence, heads, head_dim]."""
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(k.shape[1] - q.shape[1] + 1)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[3] ** 0.5
    scores = scores.masked_fill(hidden & causal, float("-inf"))
    out = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1), v)
    return out, torch.logsumexp(scores, -1)


@unittest.skipUnless(torch, "torch is not installed")
class Gradients(unittest.TestCase):
    device, runtime = "cpu", None

    def setUp(self):
        if self.device == "cpu":
            self.runtime = simulator()

    def leaves(self, **how):
        q, k, v, d_out = tensors(self.device, **how)
        return [x.requires_grad_() for x in (q, k, v)], d_out

    def exact(self, leaves, d_out, d_lse=None, causal=True):
        copies = [x.detach().double().requires_grad_() for x in leaves]
        out, lse = dense(*copies, causal=causal)
        loss = (out * d_out.double()).sum() + (0 if d_lse is None else (lse * d_lse.double()).sum())
        return torch.autograd.grad(loss, copies)

    def assert_close(self, got, exact):
        for name, x, y in zip("qkv", got, exact):
            error = (x.double() - y).abs().max()
            self.assertLess(error, 0.02 * y.abs().max(), f"d{name}")  # a few roundings of bf16; the kernels' own
            self.assertEqual(x.dtype, torch.bfloat16)  # tests hold them to twice a plain implementation's error

    def test_dropout_drops_the_same_in_both_passes(self):
        leaves, d_out = self.leaves()
        dropout = 0.3, 2**63 + 5, 7
        keep = tilewright.dropout_mask(dropout, (2 * 4, 40, 70))
        weights = torch.tensor(list(keep), device=self.device).reshape(2, 4, 40, 70).double() / (1 - dropout[0])
        copies = [x.detach().double().requires_grad_() for x in leaves]
        k, v = (x.repeat_interleave(2, 2) for x in copies[1:])
        scores = torch.einsum("bqhd,bkhd->bhqk", copies[0], k) / 32**0.5
        hidden = torch.ones(40, 70, dtype=torch.bool, device=self.device).triu(31)
        exact = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) * weights, v)
        out = tilewright.attention(*leaves, mask="causal", dropout=dropout, runtime=self.runtime)
        self.assertLess((out.double() - exact).abs().max(), 0.02 * exact.abs().max())
        self.assert_close(torch.autograd.grad(out, leaves, d_out), torch.autograd.grad(exact, copies, d_out.double()))

    def test_backward_of_a_loss(self):
        leaves, d_out = self.leaves()
        out = tilewright.attention(*leaves, mask="causal", runtime=self.runtime)
        out.backward(d_out)
        self.assert_close([x.grad for x in leaves], self.exact(leaves, d_out))

    def test_gradient_of_lse_too(self):
        leaves, d_out = self.leaves()
        out, lse = tilewright.attention(*leaves, mask="causal", return_lse=True, runtime=self.runtime)
        d_lse = torch.linspace(-1, 1, lse.numel(), device=self.device).reshape(lse.shape)
        got = torch.autograd.grad([out, lse], leaves, [d_out, d_lse])
        self.assert_close(got, self.exact(leaves, d_out, d_lse))

    def test_broadcast_gradient_and_views(self):
        leaves, _ = self.leaves()
        views = [x.transpose(1, 2) for x in leaves]  # heads first in shape, sequence first in memory
        out = tilewright.attention(*views, layout="bhsd", runtime=self.runtime)
        out.sum().backward()
        self.assert_close([x.grad for x in leaves], self.exact(leaves, torch.ones_like(leaves[0]), causal=False))

    def test_compiled(self):
        leaves, d_out = self.leaves()

        def layer(q, k, v):
            return tilewright.attention(2 * q, k, v, mask="causal", runtime=self.runtime)

        out = torch.compile(layer, backend="aot_eager")(*leaves)
        got = torch.autograd.grad(out, leaves, d_out)
        expected = self.exact([2 * leaves[0].detach(), *leaves[1:]], d_out)
        self.assert_close(got, [2 * expected[0], *expected[1:]])

    def test_a_spec_with_blocks_and_no_gradient_needed(self):
        leaves, d_out = self.leaves()
        spec = "head_dim: 32\ngqa_ratio: 2\nmask: causal\nblocks:\n  m: 64\n  n: 32\n"
        out = tilewright.attention(*leaves, spec=spec, runtime=self.runtime)
        self.assert_close(torch.autograd.grad(out, leaves, d_out), self.exact(leaves, d_out))
        with torch.no_grad():
            plain = tilewright.attention(*leaves, spec=spec, runtime=self.runtime)
        self.assertTrue(torch.equal(plain, out))
        self.assertFalse(plain.requires_grad)

    def test_sinks_and_expressions(self):
        leaves, d_out = self.leaves()
        sinks = torch.linspace(-2, 2, 4, device=self.device).requires_grad_()
        slopes = torch.tensor([0.1, 0.2, 0.3, 0.4], device=self.device)
        spec = ("head_dim: 32\ngqa_ratio: 2\nsinks: true\nmask: q - kv < window\nscalars: {window: int, cap: float}\n"
                "score: \"cap * tanh(score / cap) - slope[head] * abs(q - kv)\"\n"
                "tensors: {slope: \"float32[head]\"}\n")
        out = tilewright.attention(*leaves, spec=spec, sinks=sinks, scalars={"window": 20, "cap": 2.0},
                                   tensors={"slope": slopes}, runtime=self.runtime)
        got = torch.autograd.grad(out, [*leaves, sinks], d_out)

        copies = [x.detach().double().requires_grad_() for x in (*leaves, sinks)]
        q, k, v, logits = copies
        k, v = (x.repeat_interleave(2, 2) for x in (k, v))
        distance = torch.arange(40, device=self.device)[:, None] + 30 - torch.arange(70, device=self.device)
        scores = 2 * torch.tanh(torch.einsum("bqhd,bkhd->bhqk", q, k) / 32**0.5 / 2)
        scores = scores - slopes.double()[:, None, None] * distance.abs()
        scores = scores.masked_fill(distance >= 20, float("-inf"))
        scores = torch.cat([scores, logits[:, None, None].expand(2, 4, 40, 1)], -1)
        dense_out = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1)[..., :-1], v)
        exact = torch.autograd.grad((dense_out * d_out.double()).sum(), copies)
        self.assert_close(got[:3], exact[:3])
        self.assertLess((got[3].double() - exact[3]).abs().max(), 0.02 * exact[3].abs().max())

    def test_packed_sequences(self):
        lengths_q, used = (5, 0, 33), (20, 7, 30)
        q, k, v, d_out = (x[0] for x in tensors(self.device, rows=40, keys=64))  # two rows and four keys of no sequence
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]

        def on_device(numbers):
            return torch.tensor(numbers, dtype=torch.int32, device=self.device)

        starts_q, starts_kv = on_device([0, 5, 5, 38]), on_device([0, 20, 27, 60])
        out, lse = tilewright.attention(*leaves, mask="causal", cu_seqlens_q=starts_q, cu_seqlens_kv=starts_kv,
                                        seqused_kv=on_device(used), return_lse=True, runtime=self.runtime)
        got = torch.autograd.grad([out, lse], leaves, [d_out, torch.ones_like(lse)])
        exact = [torch.zeros_like(x, dtype=torch.double) for x in leaves]
        for i, (rows, keys) in enumerate(zip(lengths_q, used)):
            if rows:
                at_q, at_kv = int(starts_q[i]), int(starts_kv[i])
                parts = [leaves[0][None, at_q:at_q + rows], *(x[None, at_kv:at_kv + keys] for x in leaves[1:])]
                ones = torch.ones((1, 4, rows), device=self.device)
                for to, part, at in zip(exact, self.exact(parts, d_out[None, at_q:at_q + rows], ones),
                                        (at_q, at_kv, at_kv)):
                    to[at:at + part.shape[1]] = part[0]
        self.assert_close(got, exact)
        self.assertFalse(got[1][57:].any() or got[2][57:].any() or got[0][38:].any())

    def test_bias(self):
        leaves, d_out = self.leaves()
        for shape in ((2, 4, 40, 70), (1, 4, 40, 70), (2, 1, 1, 70)):
            bias = torch.randn(shape, device=self.device).to(torch.bfloat16).requires_grad_()
            spec = "head_dim: 32\ngqa_ratio: 2\nmask: causal\nbias: true\n"
            out = tilewright.attention(*leaves, spec=spec, tensors={"bias": bias}, runtime=self.runtime)
            got = torch.autograd.grad(out, [*leaves, bias], d_out)

            copies = [x.detach().double().requires_grad_() for x in (*leaves, bias)]
            q, k, v, added = copies
            k, v = (x.repeat_interleave(2, 2) for x in (k, v))
            hidden = torch.ones(40, 70, dtype=torch.bool, device=self.device).triu(31)
            scores = (torch.einsum("bqhd,bkhd->bhqk", q, k) / 32**0.5 + added).masked_fill(hidden, float("-inf"))
            dense_out = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1), v)
            exact = torch.autograd.grad((dense_out * d_out.double()).sum(), copies)
            self.assert_close(got[:3], exact[:3])
            self.assertEqual((got[3].shape, got[3].dtype), (bias.shape, bias.dtype))
            self.assertLess((got[3].double() - exact[3]).abs().max(), 0.02 * exact[3].abs().max())

    def test_bias_compiled(self):
        leaves, d_out = self.leaves()
        bias = torch.randn(1, 4, 40, 70, device=self.device).to(torch.bfloat16).requires_grad_()

        def layer(q, k, v, bias):
            return tilewright.attention(q, k, v, spec={"head_dim": 32, "gqa_ratio": 2, "bias": True},
                                        tensors={"bias": bias}, runtime=self.runtime)

        expected = torch.autograd.grad(layer(*leaves, bias), bias, d_out)[0]
        got = torch.autograd.grad(torch.compile(layer, backend="aot_eager")(*leaves, bias), bias, d_out)[0]
        self.assertLess((got - expected).abs().max(), 0.02 * expected.abs().max())

    def test_refused(self):
        leaves, _ = self.leaves()
        slope = torch.ones(4, device=self.device).requires_grad_()
        spec = "head_dim: 32\ngqa_ratio: 2\nscore: score * slope[head]\ntensors: {slope: \"float32[head]\"}\n"
        with self.assertRaisesRegex(tilewright.UsageError, "tensor slope requires a gradient"):
            tilewright.attention(*leaves, spec=spec, tensors={"slope": slope}, runtime=self.runtime)
        with self.assertRaisesRegex(tilewright.UsageError, "where gradients are recorded"):
            tilewright.attention(*leaves, out=torch.empty_like(leaves[0]), runtime=self.runtime)


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "no CUDA device")
class CudaGradients(Gradients):
    device = "cuda"


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    if result.testsRun == len(result.skipped):
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
