"""tilewright.attention on the simulator against a NumPy reference."""

import functools
import pathlib
import tempfile
import unittest

import numpy as np
from support import ROOT, assert_matches, normal, simulator, tilewright, to_bf16


def inputs(rows=65, keys=97, heads=4, kv_heads=2, dim=64, dim_v=None, batch=2, element=np.float16):
    make = to_bf16 if element is np.uint16 else functools.partial(np.asarray, dtype=np.float16)
    return (
        make(normal(1, batch, rows, heads, dim)),
        make(normal(2, batch, keys, kv_heads, dim)),
        make(normal(3, batch, keys, kv_heads, dim_v or dim)),
    )


def attention(*arguments, **keywords):
    return tilewright.attention(*arguments, runtime=simulator(), **keywords)


class Packed(unittest.TestCase):
    def test_sequences_one_behind_the_other(self):
        lengths_q, lengths_kv = (30, 0, 70), (45, 9, 66)
        starts_q, starts_kv = (np.cumsum((0,) + lengths, dtype=np.int32) for lengths in (lengths_q, lengths_kv))
        q = normal(1, 100, 4, 64).astype(np.float16)
        k, v = (normal(seed, 120, 2, 64).astype(np.float16) for seed in (2, 3))
        out, lse = attention(q, k, v, mask="causal", cu_seqlens_q=starts_q, cu_seqlens_kv=starts_kv, return_lse=True)
        self.assertEqual((out.shape, lse.shape), ((100, 4, 64), (4, 100)))
        for i, rows in enumerate(lengths_q):
            if rows:
                here, there = slice(*starts_q[i : i + 2]), slice(*starts_kv[i : i + 2])
                assert_matches(
                    self, out[None, here], q[None, here], k[None, there], v[None, there], lse[None, :, here], mask="causal"
                )

    def test_used_rows_and_one_array_for_both(self):
        starts, used = np.array([0, 20, 50], np.int32), np.array([20, 11], np.int32)
        q, k, v = (normal(seed, 50, 2, 32).astype(np.float16) for seed in (1, 2, 3))
        out = np.full_like(q, 7)
        attention(q, k, v, cu_seqlens_q=starts, seqused_q=used, seqused_kv=used, out=out)
        assert_matches(self, out[None, 20:31], q[None, 20:31], k[None, 20:31], v[None, 20:31])
        self.assertTrue((out[31:] == 7).all())


class Sinks(unittest.TestCase):
    def test_a_sink_is_a_key_without_a_value(self):
        q, k, v = inputs(keys=33)
        sinks = np.array([0.5, -3.0, 2.0, 40.0], np.float32)
        plain, plain_lse = attention(q, k, v, return_lse=True)
        out, lse = attention(q, k, v, sinks=sinks, return_lse=True)
        expected_lse = np.logaddexp(plain_lse.astype(np.float64), sinks[None, :, None])
        self.assertLess(np.abs(lse - expected_lse).max(), 1e-4)
        share = np.exp(plain_lse - expected_lse).transpose(0, 2, 1)[..., None]
        self.assertLess(np.abs(out.astype(np.float64) - plain * share).max(), 4e-3)


class Keywords(unittest.TestCase):
    def test_masks_and_scores(self):
        for how in (
            {},
            {"mask": "causal"},
            {"mask": "causal_top_left"},
            {"window": (20, 3)},
            {"window": (None, 3)},
            {"mask": "causal", "softcap": 5.0, "scale": 0.5},
        ):
            with self.subTest(how):
                q, k, v = inputs()
                out, lse = attention(q, k, v, return_lse=True, **how)
                self.assertEqual((out.shape, out.dtype, lse.shape), (q.shape, np.float16, (2, 4, 65)))
                assert_matches(self, out, q, k, v, lse, **how)

    def test_bf16_as_bits(self):
        q, k, v = inputs(element=np.uint16)
        out = attention(q, k, v, mask="causal")
        self.assertEqual(out.dtype, np.uint16)
        assert_matches(self, out, q, k, v, mask="causal")

    def test_rows_that_see_no_key(self):
        q, k, v = inputs(rows=70, keys=9)
        out, lse = attention(q, k, v, mask="causal", return_lse=True)
        self.assertTrue(np.isneginf(lse[..., :61]).all())
        assert_matches(self, out, q, k, v, lse, mask="causal")

    def test_no_keys_at_all(self):
        q, k, v = inputs(keys=0)
        out, lse = attention(q, k, v, return_lse=True)
        self.assertTrue((out == 0).all() and np.isneginf(lse).all())

    def test_head_dims_differ(self):
        q, k, v = inputs(dim=40, dim_v=72)
        out = attention(q, k, v)
        self.assertEqual(out.shape, (2, 65, 4, 72))
        assert_matches(self, out, q, k, v)

    def test_blocks_change_the_schedule_alone(self):
        q, k, v = inputs()
        blocks = {"m": 64, "n": 32, "stages": 2}
        assert_matches(self, attention(q, k, v, blocks=blocks), q, k, v)


class Memory(unittest.TestCase):
    def test_heads_first(self):
        q, k, v = inputs()
        first = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v)]
        out, lse = attention(*first, layout="bhsd", mask="causal", return_lse=True)
        self.assertEqual((out.shape, lse.shape), ((2, 4, 65, 64), (2, 4, 65)))
        assert_matches(self, out.transpose(0, 2, 1, 3), q, k, v, lse, mask="causal")

    def test_strides_do_not_change_a_bit(self):
        q, k, v = inputs()
        expected = attention(q, k, v)
        packed = np.empty((2, 97, 8, 64), np.float16)  # K and V interleaved by head
        packed[:, :, 0:2], packed[:, :, 4:6] = k, v
        every_second = np.empty((2, 130, 4, 64), np.float16)
        every_second[:, ::2] = q
        out = attention(every_second[:, ::2], packed[:, :, 0:2], packed[:, :, 4:6])
        self.assertTrue((out == expected).all())

    def test_out_is_filled_and_returned(self):
        q, k, v = inputs()
        out = np.full_like(q, np.nan)
        self.assertIs(attention(q, k, v, out=out), out)
        assert_matches(self, out, q, k, v)


class Specs(unittest.TestCase):
    TEXT = "head_dim: 64\ndtype: fp16\ngqa_ratio: 2\nmask: causal\nlse: true\n"

    def test_text_dict_and_file_are_one(self):
        q, k, v = inputs()
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "a.yaml")
            file.write_text(self.TEXT)
            as_dict = {"head_dim": 64, "dtype": "fp16", "gqa_ratio": 2, "mask": "causal", "lse": True}
            answers = [attention(q, k, v, spec) for spec in (self.TEXT, as_dict, file, str(file))]
        for out in answers[1:]:
            self.assertTrue((out == answers[0]).all())
        assert_matches(self, answers[0], q, k, v, mask="causal")

    def test_scale_at_launch(self):
        q, k, v = inputs()
        spec = "head_dim: 64\ndtype: fp16\ngqa_ratio: 2\nsoftmax_scale: launch\n"
        for scale in (0.25, 0.03125):
            assert_matches(self, attention(q, k, v, spec, scale=scale), q, k, v, scale=scale)

    def test_scalars_and_tensors_of_expressions(self):
        q, k, v = inputs()
        spec = 'head_dim: 64\ndtype: fp16\ngqa_ratio: 2\nmask: "q - kv < window && kv <= q && keep[kv]"\n'
        spec += 'scalars: {window: int}\ntensors: {keep: "bool[kv]"}\n'
        kernel, out = simulator().kernel(spec), np.empty_like(q)
        keep = np.ones(k.shape[1], bool)
        for window in (9, 1000):
            kernel.launch(q, k, v, out, scalars={"window": window}, tensors={"keep": keep})
            assert_matches(self, out, q, k, v, window=(window - 1, 0))
        with self.assertRaisesRegex(tilewright.UsageError, "keep: kv dimension"):
            kernel.launch(q, k, v, out, scalars={"window": 9}, tensors={"keep": keep[:-1]})
        with self.assertRaisesRegex(tilewright.UsageError, "windw was given.*nearest: window"):
            kernel.launch(q, k, v, out, scalars={"window": 9, "windw": 9}, tensors={"keep": keep})

    def test_tables_of_look_ups(self):
        q, k, v = inputs()
        spec = 'head_dim: 64\ndtype: fp16\ngqa_ratio: 2\nmask: "document[q] == document[kv] && kv <= q"\n'
        spec += 'tensors: {document: "int32[kv]"}\n'
        kernel, out = simulator().kernel(spec), np.empty_like(q)
        document = np.zeros(k.shape[1], np.int32)
        kernel.launch(q, k, v, out, tensors={"document": document})
        assert_matches(self, out, q, k, v, window=(len(document), 0))
        workspace = np.empty(kernel.workspace_size(q, k), np.uint8)
        self.assertGreater(workspace.nbytes, 0)
        for unchanged in (False, True):
            out.fill(0)
            kernel.launch(q, k, v, out, tensors={"document": document}, workspace=workspace, tensors_unchanged=unchanged)
            assert_matches(self, out, q, k, v, window=(len(document), 0))
        with self.assertRaisesRegex(tilewright.UsageError, "tensors_unchanged=True without a workspace"):
            kernel.launch(q, k, v, out, tensors={"document": document}, tensors_unchanged=True)
        with self.assertRaisesRegex(tilewright.UsageError, "workspace: it has 1 bytes, expected [0-9]+ bytes"):
            kernel.launch(q, k, v, out, tensors={"document": document}, workspace=workspace[:1])

    def test_a_kernel_is_kept(self):
        runtime = simulator()
        self.assertIs(runtime.kernel(self.TEXT), runtime.kernel(self.TEXT))

    def test_launch_options(self):
        q, k, v = inputs()
        out = tilewright.attention(q, k, v, runtime=simulator())
        again = np.empty_like(out)
        kernel = simulator().kernel({"head_dim": q.shape[3], "dtype": "fp16", "gqa_ratio": q.shape[2] // k.shape[2]})
        kernel.launch(q, k, v, again, sm_margin=1, programmatic_dependent_launch=True)
        np.testing.assert_array_equal(again, out)
        with self.assertRaisesRegex(tilewright.UsageError, "sm_margin is 99"):
            kernel.launch(q, k, v, again, sm_margin=99)

    def test_prepare(self):
        runtime = simulator()
        runtime.prepare([])
        runtime.prepare(["head_dim: 24", {"head_dim": 16}])
        tilewright.Kernel("head_dim: 24", runtime, prepared_only=True)
        with self.assertRaisesRegex(tilewright.SpecError, "(?s)2 of 3 specs have no kernel:.*first: .*second: "):
            runtime.prepare([{"head_dim": 24, "pass": "decode", "name": "first"}, "head_dim: 24",
                             {"head_dim": 24, "pass": "decode", "name": "second"}])

    def test_a_bundle_that_is_none(self):
        with self.assertRaisesRegex(tilewright.SetupError, "the bundle /nonexistent.twb cannot be used"):
            tilewright.Runtime("simulator", bundles=["/nonexistent.twb"])

    def test_only_what_was_prepared(self):
        with self.assertRaisesRegex(tilewright.UsageError, "not prepared"):
            tilewright.Kernel("{head_dim: 24, softcap: 3}", simulator(), prepared_only=True)
        simulator().kernel("{head_dim: 24, softcap: 3}")
        tilewright.Kernel({"softcap": 3, "head_dim": 24}, simulator(), prepared_only=True)

    def test_kernel_tells_what_it_is(self):
        kernel = tilewright.Kernel(ROOT / "specs" / "llama-3-8b-prefill.yaml", simulator())
        self.assertEqual(kernel.info["head_dim_qk"], 128)
        self.assertEqual(kernel.info["gqa_ratio"], 4)
        self.assertIn("attention", kernel.source)
        self.assertIn("Kernel", repr(kernel))


if __name__ == "__main__":
    unittest.main()
