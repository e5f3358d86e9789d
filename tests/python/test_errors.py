"""What the Python package says when something does not fit: the type of the exception, and the words that help."""

import os
import pathlib
import subprocess
import sys
import unittest

import numpy as np
from support import ROOT, simulator, tilewright

Q = np.zeros((1, 8, 4, 64), np.float16)
K = np.zeros((1, 8, 2, 64), np.float16)
SPEC = "head_dim: 64\ndtype: fp16\ngqa_ratio: 2\n"
READ_ONLY = np.zeros_like(Q)
READ_ONLY.flags.writeable = False


class Errors(unittest.TestCase):
    def refused(self, kind, words, call, *arguments, **keywords):
        with self.assertRaises(kind) as caught:
            call(*arguments, **keywords)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def attention_refused(self, kind, words, *arguments, **keywords):
        self.refused(kind, words, tilewright.attention, *arguments, runtime=simulator(), **keywords)

    def test_arguments(self):
        usage = tilewright.UsageError
        for words, arguments, keywords in (
            # A spec's own keys cannot change at launch.
            (["window", "spec"], (Q, K, K, SPEC), {"window": (4, 0)}),
            (["softcap", "spec"], (Q, K, K, SPEC), {"softcap": 3.0}),
            (["mask", "layout", "spec"], (Q, K, K, SPEC), {"mask": "causal", "layout": "bhsd"}),
            (["scale"], (Q, K, K, SPEC), {"scale": 0.5}),
            (["return_lse", "lse: true"], (Q, K, K, SPEC), {"return_lse": True}),
            (["mask and window"], (Q, K, K), {"mask": "causal", "window": (4, 0)}),
            (["window", "(left, right)"], (Q, K, K), {"window": 4}),
            (["layout", "bshd, bhsd or packed"], (Q, K, K), {"layout": "paged"}),
            (["q", "3 dimensions"], (Q, K, K), {"layout": "packed"}),
            (["cu_seqlens_q is missing"], (Q[0], K[0], K[0]), {"layout": "packed"}),
            (["sinks", "head"], (Q, K, K), {"sinks": np.zeros(3, np.float32)}),
            (["4 query heads", "3 KV heads"], (Q, np.zeros((1, 8, 3, 64), np.float16), K), {}),
            (["float16", "uint16"], (Q, K.astype(np.uint16), K), {}),
            (["float64", "float16"], (Q.astype(np.float64), K, K), {}),
            (["q", "(8, 4, 64)", "4 dimensions"], (Q[0], K, K), {}),
            (["q", "list"], ([1.0], K, K), {}),
            (["out", "read-only"], (Q, K, K), {"out": READ_ONLY}),
            (["out"], (Q, K, K), {"out": np.zeros((1, 7, 4, 64), np.float16)}),
            (["contiguous"], (Q[..., ::2], K[..., :32], K), {}),
            (["batch"], (Q, np.zeros((2, 8, 2, 64), np.float16), np.zeros((2, 8, 2, 64), np.float16)), {}),
            (["int"], (Q, K, K, 7), {}),
            (["nowhere.yaml"], (Q, K, K, "nowhere.yaml"), {}),
        ):
            with self.subTest(words):
                self.attention_refused(usage, words, *arguments, **keywords)

    def test_specs(self):
        for words, spec in (
            (["spec:2:", "head_dim"], "dtype: fp16\nhead_dm: 64\n"),
            (["head_dim", "multiple of 8"], "head_dim: 100\n"),
            (["decode"], SPEC + "pass: decode\n"),
        ):
            with self.subTest(words):
                self.attention_refused(tilewright.SpecError, words, Q, K, K, spec)
        self.attention_refused(tilewright.SpecError, ["mask"], Q, K, K, mask="diagonal")

    def test_the_spec_file_is_named(self):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "wrong.yaml")
            file.write_text("head_dim: 64\nmsk: causal\n")
            self.attention_refused(tilewright.SpecError, ["wrong.yaml:2:1", "mask"], Q, K, K, file)

    def test_unknown_keyword(self):
        self.refused(TypeError, ["sofcap"], tilewright.attention, Q, K, K, sofcap=3.0)

    def test_runtime_options(self):
        self.refused(tilewright.UsageError, ["tpu", "simulator"], tilewright.Runtime, "tpu")
        self.refused(tilewright.UsageError, ["gcc", "llvm"], tilewright.Runtime, simulator_compiler="gcc")
        self.refused(tilewright.TilewrightError, ["sm_99"], tilewright.Runtime, "simulator", simulated_target="sm_99")

    def test_every_exception_is_ours(self):
        for name in ("UsageError", "SpecError", "SetupError", "CompileError", "DeviceError", "InternalError"):
            self.assertTrue(issubclass(getattr(tilewright, name), tilewright.TilewrightError))
        self.assertTrue(issubclass(tilewright.UsageError, ValueError))


class Import(unittest.TestCase):
    def child(self, code, **environment):
        return subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment},
            capture_output=True, text=True,
        )

    def test_importing_imports_neither_torch_nor_numpy(self):
        code = "import sys, tilewright; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
        self.assertEqual(self.child(code).stdout.strip(), "[]")

    def test_library_missing(self):
        code = "import tilewright; print(tilewright.version())"
        done = self.child(code, TILEWRIGHT_LIBRARY="/nonexistent/libtilewright.so")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("SetupError", done.stderr)
        self.assertIn("/nonexistent/libtilewright.so", done.stderr)


if __name__ == "__main__":
    unittest.main()
