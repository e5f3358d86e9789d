#!/usr/bin/env bash
# One round on a GPU machine, which may have no network and nothing to build with: the GPU tests, the main job, then the
# comparison with peers. Takes a build made elsewhere: build/{test_gpu,tilewright,libtilewright.so}; needs a driver, NVRTC
# (of a toolkit or a wheel) and, for the comparison, python3 with torch.
#
#   scripts/gpu_round.sh FOLDER [options of bench/peers.py]
#
# FOLDER receives environment.txt, test_gpu.txt, test_torch.txt, first_light.txt, peers.txt and peers.json. Each step has a
# time limit (TEST_SECONDS, PEERS_SECONDS), and each runs whatever became of the one before. Exit code: 0 if all passed.
set -uo pipefail
cd "$(dirname "$0")/.."

[ $# -ge 1 ] || { echo "usage: scripts/gpu_round.sh FOLDER [options of bench/peers.py]" >&2; exit 2; }
mkdir -p "$1" || exit 3
folder=$(cd "$1" && pwd)
shift
export TILEWRIGHT_CACHE_DIR=${TILEWRIGHT_CACHE_DIR:-$(mktemp -d)}
failed=

# Where there is no toolkit, the NVRTC of python3's packages, which only a running Python would find.
if [ -z "${TILEWRIGHT_NVRTC:-}" ] && ! ls /usr/local/cuda/lib64/libnvrtc.so.1[23] >/dev/null 2>&1; then
  packages=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null) || packages=
  [ -f "$packages/cu13/lib/libnvrtc.so.13" ] && export TILEWRIGHT_NVRTC=$packages/cu13/lib
fi

# step SECONDS NAME COMMAND…: the output goes to the screen and to NAME.txt.
step() {
  local seconds=$1 name=$2
  shift 2
  echo "== $name: $*"
  timeout --kill-after=10 "$seconds" "$@" 2>&1 | tee "$folder/$name.txt"
  local code=${PIPESTATUS[0]}
  [ "$code" = 0 ] || { echo "== $name: exit code $code"; failed="$failed $name"; }
}

step 60 environment build/tilewright doctor
# Most of the tests' time is compiling: eight processes share them.
step "${TEST_SECONDS:-240}" test_gpu bash -c '
  for i in 0 1 2 3 4 5 6 7; do GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=$i build/test_gpu --gtest_brief=1 & done
  for process in $(jobs -p); do wait "$process" || failed=1; done
  exit "${failed:-0}"'
step 120 test_torch python3 tests/python/test_torch.py
step 120 first_light scripts/first_light.sh
step "${PEERS_SECONDS:-300}" peers python3 bench/peers.py --out "$folder/peers.json" "$@"

[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
