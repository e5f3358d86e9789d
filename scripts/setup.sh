#!/usr/bin/env bash
# Installs what the build needs and is not there yet, and says what. Safe to run again: then it changes nothing.
#
# Debian 12, Ubuntu 24.04 or later. Needs root or sudo only if a package is missing.
#   TILEWRIGHT_CUDA=auto     cuda.h and NVRTC from a CUDA toolkit (12 or 13) if there is one, else from wheels
#   TILEWRIGHT_CUDA=toolkit  only from a toolkit;  TILEWRIGHT_CUDA=wheels  always from wheels, into build/cuda
#   scripts/setup.sh test    also Chromium, in which a test looks at the tuning report; the test is skipped without
#   TILEWRIGHT_LLVM=off      leaves LLVM out: no LLVM plugin, and the simulator compiles with g++
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '[setup] %s\n' "$*" >&2; }
fail() { printf '[setup] error: %s\n' "$*" >&2; exit 3; }

# ---------------------------------------------------------------------------------------------- Debian packages

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

# Prints the packages of the arguments that are missing. "command=package": the command counts, wherever it came from.
missing() {
  for entry in "$@"; do
    case "$entry" in
      *=*) command -v "${entry%%=*}" >/dev/null || echo "${entry#*=}" ;;
      *) installed "$entry" || echo "$entry" ;;
    esac
  done
}

apt_ready=
apt_install() {
  local root=
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { say "these packages need root or sudo: $*"; return 1; }
    root="sudo env DEBIAN_FRONTEND=noninteractive"
  fi
  export DEBIAN_FRONTEND=noninteractive
  if [ -z "$apt_ready" ]; then
    say "apt-get update"
    $root apt-get update -q >&2 || say "warning: apt-get update failed; trying with the lists at hand"
    apt_ready=yes
  fi
  say "apt-get install $*"
  $root apt-get install -y -q -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >&2
}

has_numpy() {
  for python in python3 /usr/bin/python3; do
    "$python" -c 'import numpy' 2>/dev/null && return 0
  done
  return 1
}

command -v apt-get >/dev/null || fail "needs Debian 12 or Ubuntu 24.04 (no apt-get here); packages: see scripts/setup.sh"

needed=$(missing g++=g++ cmake=cmake ninja=ninja-build python3=python3 libyaml-cpp-dev libgtest-dev \
                 libbenchmark-dev libcli11-dev libfmt-dev nlohmann-json3-dev libxxhash-dev)
has_numpy || needed="$needed python3-numpy"
if [ -n "${needed// /}" ]; then
  apt_install $needed || fail "could not install:" $needed
fi

if [ "${TILEWRIGHT_LLVM:-auto}" != off ]; then
  # clang-19 and its runtime build the fuzz target; the two -dev packages are the plugin's.
  needed=$(missing llvm-19-dev libclang-19-dev clang-19=clang-19 libclang-rt-19-dev)
  if [ -n "$needed" ] && ! apt_install $needed; then
    say "warning: LLVM 19 could not be installed; building without the LLVM plugin (the simulator uses g++)"
  fi
fi

if [ "${1:-}" = test ] && ! command -v chromium >/dev/null && ! command -v chromium-headless-shell >/dev/null; then
  # Debian's smaller build without windows first; Ubuntu has neither but as a snap.
  apt_install chromium-headless-shell fonts-dejavu-core || apt_install chromium fonts-dejavu-core ||
    say "warning: Chromium could not be installed; the test of the tuning report in a browser will be skipped"
fi

# ------------------------------------------------------------------------------------------- cuda.h and NVRTC

# Pinned to 13.0: every driver that serves CUDA 13 accepts what this NVRTC makes, PTX included.
wheels=(nvidia-cuda-nvrtc nvidia-cuda-runtime)
wheel_version='>=13.0,<13.1'

# Prints the root of a toolkit that has cuda.h, nvrtc.h and an NVRTC of 12.x or 13.x.
find_toolkit() {
  for root in ${CUDA_HOME:-} ${CUDA_PATH:-} /usr/local/cuda /usr/local/cuda-1[23]*; do
    if [ -f "$root/include/cuda.h" ] && [ -f "$root/include/nvrtc.h" ] &&
       ls "$root"/lib*/libnvrtc.so.1[23] >/dev/null 2>&1; then
      echo "$root"
      return
    fi
  done
}

unpack_wheels() {
  if [ -f build/cuda/complete ]; then
    say "CUDA headers and NVRTC: build/cuda ($(cat build/cuda/complete))"
    return
  fi
  python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip || fail "pip is needed to fetch NVRTC"
  local folder=build/cuda.partial
  rm -rf "$folder" build/cuda
  mkdir -p "$folder"
  # Downloaded and unzipped, never installed: works where pip may not touch the system (PEP 668).
  say "pip download ${wheels[*]} ($wheel_version), unpacked into build/cuda"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    -d "$folder/wheels" "${wheels[@]/%/$wheel_version}" >&2 || fail "could not download ${wheels[*]}"
  for wheel in "$folder"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$folder/unpacked"
  done
  mkdir -p "$folder/include" "$folder/lib"
  cp -r "$folder"/unpacked/nvidia/*/include/. "$folder/include/"
  cp "$folder"/unpacked/nvidia/*/lib/{libnvrtc,libnvrtc-builtins}.so.* "$folder/lib/"
  [ -f "$folder/include/cuda.h" ] && [ -f "$folder/include/nvrtc.h" ] || fail "the wheels hold no cuda.h and nvrtc.h"
  (cd "$folder/wheels" && for wheel in *.whl; do echo "$wheel" | cut -d- -f1,2; done | paste -sd " ") >"$folder/complete"
  rm -rf "$folder/wheels" "$folder/unpacked"
  mv "$folder" build/cuda
  say "CUDA headers and NVRTC: build/cuda ($(cat build/cuda/complete))"
}

case "${TILEWRIGHT_CUDA:-auto}" in
  auto | toolkit)
    toolkit=$(find_toolkit)
    if [ -n "$toolkit" ]; then
      say "CUDA headers and NVRTC: $toolkit"
      rm -rf build/cuda
    elif [ "${TILEWRIGHT_CUDA:-auto}" = toolkit ]; then
      fail "TILEWRIGHT_CUDA=toolkit, but no CUDA 12 or 13 toolkit in CUDA_HOME, CUDA_PATH or /usr/local/cuda"
    else
      unpack_wheels
    fi
    ;;
  wheels) unpack_wheels ;;
  *) fail "TILEWRIGHT_CUDA is '${TILEWRIGHT_CUDA}'; expected auto, toolkit or wheels" ;;
esac
