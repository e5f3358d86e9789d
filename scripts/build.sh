#!/usr/bin/env bash
# Configures and builds into build/. Argument: the target, `product` (command, library, plugin) or `all` (default).
set -euo pipefail
cd "$(dirname "$0")/.."

llvm=OFF
fuzz=OFF
if [ "${TILEWRIGHT_LLVM:-auto}" != off ]; then
  [ -d /usr/lib/llvm-19/lib/cmake/llvm ] && [ -d /usr/lib/llvm-19/lib/cmake/clang ] && llvm=ON
  command -v clang-19 >/dev/null && ls /usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.fuzzer-* >/dev/null 2>&1 && fuzz=ON
fi
[ "$llvm" = ON ] || echo "[build] without the LLVM plugin: the simulator compiles with g++" >&2

generator=()
[ -f build/CMakeCache.txt ] || generator=(-G Ninja)
# The headers may have moved since the last run (another toolkit, or wheels instead of one): look again.
cmake "${generator[@]}" -S . -B build -UCUDA_HEADERS -UNVRTC_HEADERS -DTILEWRIGHT_LLVM=$llvm -DTILEWRIGHT_FUZZ=$fuzz
cmake --build build --target "${1:-all}" --parallel "${JOBS:-$(nproc)}"
