#!/usr/bin/env bash
# usage: build.sh BUILD_FOLDER SOURCE_FOLDER OUTPUT_FOLDER CXX
# Installs the build and builds the programs of libtorch against it, with the PyTorch of DDPRUN_TORCH_PYTHON, else the
# distribution's. Does nothing where there is none.
set -euo pipefail
build=$1 source=$2 output=$3 cxx=$4
torch=
if [ -n "${DDPRUN_TORCH_PYTHON-}" ]; then
  torch=$("$DDPRUN_TORCH_PYTHON" -c 'import torch; print(torch.utils.cmake_prefix_path)' 2>/dev/null || true)
fi
if [ -z "$torch" ]; then
  torch=$(dirname "$(ls -d /usr/lib/*/cmake/Torch 2>/dev/null | head -1)")
  [ -f "$torch/Torch/TorchConfig.cmake" ] || { echo "no PyTorch for C++ here: libtorch-dev, or DDPRUN_TORCH_PYTHON"; exit 0; }
fi
echo "PyTorch in $torch"
cmake --install "$build" --prefix "$output/prefix" >/dev/null
cmake -S "$source" -B "$output/build" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$output/prefix;$torch"
cmake --build "$output/build"
