"""The arithmetic and text of bench/peers.py."""

import contextlib
import io
import unittest

import support  # noqa: F401  (puts bench/ on the path)
import cells
import peers


class Cells(unittest.TestCase):
    def test_the_table(self):
        table = cells.make_cells([64, 128, 256], [1024, 4096, 16384], ["full", "causal"])
        self.assertEqual(len(table), 18)
        first = table[0]
        self.assertEqual((first.heads, first.batch, first.name), (32, 16, "D64 S1024 full"))
        for full, causal in zip(table[::2], table[1::2]):
            self.assertEqual(full.flops, 4 * full.batch * full.heads * full.seqlen**2 * full.head_dim)
            self.assertEqual(causal.flops, full.flops / 2)

    def test_gqa(self):
        (cell,) = cells.make_cells([128], [4096], ["full"], width=4096, gqa_ratio=4)
        self.assertEqual((cell.heads, cell.kv_heads), (32, 8))

    def test_refused(self):
        for arguments, words in (
            (([96], [1024], ["full"]), "2048"),
            (([64], [1000], ["full"]), "16384"),
            (([64], [1024], ["diagonal"]), "diagonal"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                cells.make_cells(*arguments)

    def test_blocks(self):
        blocks = cells.parse_blocks("d128:m=128,n=64, warps=4,query_in_registers=true")
        self.assertEqual(blocks.head_dim, 128)
        self.assertEqual(dict(blocks.values), {"m": 128, "n": 64, "warps": 4, "query_in_registers": True})
        self.assertEqual(blocks.name, "ours[m=128,n=64,warps=4,query_in_registers=True]")
        self.assertIsNone(cells.parse_blocks("m=64").head_dim)
        for text in ("m", "m=x", "h=1:m=64", "m=64,,n=64", ""):
            with self.assertRaises(ValueError):
                cells.parse_blocks(text)

    def test_median_and_deviation(self):
        self.assertEqual(cells.median_and_deviation([1, 2, 3, 4, 100]), (3, 1))

    def test_summary(self):
        def cell(name, **times):
            return {"name": name, "contestants": [{"name": n, "milliseconds": t} for n, t in times.items()]}

        failed = {"name": "c", "contestants": [{"name": "ours", "failure": "wrong"}, {"name": "fa2", "milliseconds": 1}]}
        summary = cells.summarise([cell("a", ours=1.0, fa2=2.0), cell("b", ours=2.0, fa2=1.0, flex=2.0), failed])
        self.assertEqual(set(summary), {"ours"})
        self.assertAlmostEqual(summary["ours"]["fa2"]["geomean"], 1.0)
        self.assertEqual(summary["ours"]["fa2"]["cells"], 2)
        self.assertEqual((summary["ours"]["fa2"]["least"], summary["ours"]["fa2"]["least_in"]), (0.5, "b"))
        self.assertEqual(summary["ours"]["flex"]["cells"], 1)
        self.assertIn("geometric mean 1.000 in 2 cells", cells.format_summary(summary))

    def test_peaks(self):
        self.assertEqual(cells.peak_tflops("NVIDIA H200"), 989.4)
        self.assertIsNone(cells.peak_tflops("NVIDIA GeForce GTX 970"))

    def test_format(self):
        text = cells.format_cell(
            {
                "name": "D64 S1024 full",
                "contestants": [
                    {"name": "ours", "failure": "CompileError: no\nsecond line"},
                    {"name": "fa2", "milliseconds": 0.5, "deviation_milliseconds": 0.01, "tflops": 275.0,
                     "percent_of_peak": 27.8, "speed_over_fa2": 1.0},
                ],
            }
        )
        lines = text.splitlines()
        self.assertIn("fa2", lines[1])
        self.assertIn("27.8 %", lines[1])
        self.assertIn("failed: CompileError: no", lines[2])


class Command(unittest.TestCase):
    def test_list(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(peers.main(["--list", "--head-dims", "128", "--masks", "causal"]), 0)
        self.assertEqual(len(out.getvalue().splitlines()), 3)

    def test_bad_options(self):
        for argv in (["--peers", "fa9"], ["--blocks", "m"], ["--seqlens", "1000"], ["--dtype", "int8"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as caught:
                peers.main(argv)
            self.assertEqual(caught.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
