#!/usr/bin/env bash
# The main job, on the GPU if there is one, else on the simulator: real input through a generated kernel, compared with
# the fp64 answer that is kept beside it; then a Llama-3 prefill at a small size, compared with the built-in reference.
set -euo pipefail
cd "$(dirname "$0")/.."

data=specs/data/minilm-l6-v2
build/tilewright run specs/minilm-l6-v2.yaml --q $data/q.npy --k $data/k.npy --v $data/v.npy --expect $data/out.npy
build/tilewright run specs/llama-3-8b-prefill.yaml --batch 1 --heads 4 --seqlen-q 256 --seqlen-kv 256 --check
