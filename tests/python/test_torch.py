"""tilewright.attention on torch tensors: CPU tensors through the simulator, CUDA tensors on the GPU. Skipped without torch
or without a GPU; if everything was skipped, the exit code is 77."""

import sys
import unittest

from support import simulator, tilewright

try:
    import torch
except ImportError:
    torch = None
CUDA = torch is not None and torch.cuda.is_available()


def inputs(device, dtype=None):
    generator = torch.Generator(device).manual_seed(0)

    def tensor(rows, heads):
        values = torch.randn((2, rows, heads, 64), generator=generator, device=device)
        return values.to(dtype or torch.bfloat16)

    return tensor(130, 4), tensor(200, 2), tensor(200, 2)


class Checks:
    def assert_matches(self, out, q, k, v, causal=True):
        """Twice the error of a plain implementation; everything [batch, sequence, heads, head_dim]."""
        k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
        hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(k.shape[1] - q.shape[1] + 1)

        def answer(number, rounding):
            scores = torch.einsum("bqhd,bkhd->bhqk", q.to(number), k.to(number)) / q.shape[3] ** 0.5
            weights = rounding(torch.softmax(scores.masked_fill(hidden & causal, float("-inf")), -1))
            return rounding(torch.einsum("bhqk,bkhd->bqhd", weights, v.to(number))).double()

        exact = answer(torch.float64, lambda x: x)
        allowed = 2 * (answer(torch.float32, lambda x: x.to(q.dtype).float()) - exact).abs().max()
        self.assertEqual((out.dtype, out.device), (q.dtype, q.device))
        self.assertLessEqual((out.double() - exact).abs().max(), allowed)


@unittest.skipUnless(torch, "torch is not installed")
class CpuTensors(Checks, unittest.TestCase):
    def test_through_the_simulator(self):
        q, k, v = inputs("cpu")
        out, lse = tilewright.attention(q, k, v, mask="causal", return_lse=True, runtime=simulator())
        self.assert_matches(out, q, k, v)
        self.assertEqual((lse.shape, lse.dtype), ((2, 4, 130), torch.float32))

    def test_mixed_with_numpy(self):
        q, k, v = inputs("cpu", torch.float16)
        with self.assertRaisesRegex(tilewright.UsageError, "k is a NumPy array"):
            tilewright.attention(q, k.numpy(), v, runtime=simulator())


@unittest.skipUnless(CUDA, "no CUDA device")
class CudaTensors(Checks, unittest.TestCase):
    def test_types_and_layouts(self):
        for dtype in (torch.bfloat16, torch.float16):
            q, k, v = inputs("cuda", dtype)
            out, lse = tilewright.attention(q, k, v, mask="causal", return_lse=True)
            self.assert_matches(out, q, k, v)
            first = [x.transpose(1, 2) for x in (q, k, v)]  # views: no copy, the same bits
            self.assertTrue(torch.equal(tilewright.attention(*first, mask="causal", layout="bhsd").transpose(1, 2), out))

    def test_stays_on_the_current_stream(self):
        q, k, v = inputs("cuda")
        out = torch.full_like(q, float("nan"))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            q.mul_(2.0)  # must come first
            tilewright.attention(q, k, v, mask="causal", out=out)
        stream.synchronize()
        self.assert_matches(out, q, k, v)

    def test_in_a_cuda_graph(self):
        q, k, v = inputs("cuda")
        out = torch.empty_like(q)
        tilewright.attention(q, k, v, mask="causal", out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            tilewright.attention(q, k, v, mask="causal", out=out)
        q.copy_(q.flip(0))
        out.fill_(float("nan"))
        graph.replay()
        self.assert_matches(out, q, k, v)

    def test_a_cold_kernel_in_a_cuda_graph(self):
        q, k, v = inputs("cuda")
        out = torch.zeros_like(q)
        tilewright.attention(q, k, v, mask="causal", out=out)
        expected = out.clone()
        out.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            with self.assertRaisesRegex(tilewright.UsageError, "not prepared"):
                tilewright.attention(q, k, v, mask="causal", softcap=17.25)
            tilewright.attention(q, k, v, mask="causal", out=out)
        graph.replay()
        self.assertTrue(torch.equal(out, expected))

    def test_mixed_devices(self):
        q, k, v = inputs("cuda")
        with self.assertRaisesRegex(tilewright.UsageError, "k is a torch tensor on cpu"):
            tilewright.attention(q, k.cpu(), v)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    if result.testsRun == len(result.skipped):
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
