# make run    install what is missing, build, and run attention on real input
# make test   install what is missing, build everything and run every test
# make build  install what is missing and build; the command lands at build/tilewright
#
# TILEWRIGHT_CUDA=auto|toolkit|wheels   where cuda.h and NVRTC come from (auto: a toolkit if there is one)
# TILEWRIGHT_LLVM=auto|off              whether the LLVM plugin is built
# JOBS=N                                parallel compiles and tests (default: one per core)

JOBS ?= $(shell nproc)
export JOBS

.PHONY: build run test setup clean

build: setup
	scripts/build.sh product

run: build
	scripts/first_light.sh

test:
	scripts/setup.sh test
	scripts/build.sh all
	ctest --test-dir build --output-on-failure -j $(JOBS)

setup:
	scripts/setup.sh

clean:
	rm -rf build
