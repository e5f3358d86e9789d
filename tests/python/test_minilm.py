"""The committed real input: its answer is that of its q, k and v, and our kernel gives it."""

import unittest

import numpy as np
from support import ROOT, assert_matches, reference, simulator, tilewright

DATA = ROOT / "specs" / "data" / "minilm-l6-v2"
q, k, v, out, lse = (np.load(DATA / f"{name}.npy") for name in ("q", "k", "v", "out", "lse"))


class MiniLm(unittest.TestCase):
    def test_files(self):
        for x in (q, k, v):
            self.assertEqual((x.dtype, x.shape), (np.float16, (1, 171, 12, 32)))
            self.assertTrue(np.isfinite(x).all())
            self.assertGreater(x.astype(np.float64).std(), 0.1)
        self.assertEqual((out.dtype, out.shape, lse.dtype, lse.shape), (np.float64, q.shape, np.float64, (1, 12, 171)))

    def test_answer(self):
        expected, expected_lse = reference(q, k, v)
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(lse, expected_lse, rtol=0, atol=1e-11)

    def test_kernel(self):
        answer = tilewright.attention(q, k, v, spec=ROOT / "specs" / "minilm-l6-v2.yaml", runtime=simulator())
        assert_matches(self, answer, q, k, v)


if __name__ == "__main__":
    unittest.main()
