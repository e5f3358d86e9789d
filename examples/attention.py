import numpy as np
import tilewright

random = np.random.default_rng(0)
q = random.standard_normal((1, 100, 8, 64)).astype(np.float16)  # batch, sequence, heads, head_dim
k = random.standard_normal((1, 300, 2, 64)).astype(np.float16)  # two KV heads for eight query heads
v = random.standard_normal((1, 300, 2, 64)).astype(np.float16)

# NumPy arrays go through the simulator. Pass torch CUDA tensors, and it is the GPU: no copy, torch's current stream.
out, lse = tilewright.attention(q, k, v, mask="causal", return_lse=True)
print(out.shape, out.dtype, lse.shape, lse.dtype)

# Or say what is computed in a file.
spec = "specs/mistral-7b-prefill.yaml"
print(tilewright.Kernel(spec, tilewright.Runtime("simulator")).info["schedule"])
