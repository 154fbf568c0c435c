#!/usr/bin/env bash
# usage: alone.sh configure|build SOURCE_FOLDER CXX
# Configures without tensors, as where oneDNN and zlib are not installed; build: builds, tests, installs and
# measures too, and builds a program against what was installed.
set -euo pipefail
how=$1 source=$2 cxx=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
without=(-DCMAKE_DISABLE_FIND_PACKAGE_{dnnl,ZLIB}=ON)

run() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }; }

run cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_BUILD_TYPE=Release \
  -DDDPRUN_TENSORS=OFF "${without[@]}"
parts=$(ninja -C "$work/build" -t targets all | sed -n 's|^worker/\([a-z]*\)/libddprun_.*|\1|p' | sort -u | xargs)
[ "$parts" = "comm cuda recovery reducer" ] || { echo "alone: of worker/ this builds: $parts"; exit 1; }
[ "$how" = build ] || exit 0

run cmake --build "$work/build"
run ctest --test-dir "$work/build" --output-on-failure -L "comm|reducer|rendezvous|contract|failure"
"$work/build/bin/ddprun-bench" collectives --ranks 2 --max-bytes 4096 --seconds 0.05

run cmake --install "$work/build" --prefix "$work/prefix"
mkdir "$work/program"
cp "$source/tests/package/consumer/collectives.cc" "$work/program"
cat >"$work/program/CMakeLists.txt" <<'end'
cmake_minimum_required(VERSION 3.25)
project(program LANGUAGES C CXX)
find_package(ddprun REQUIRED)
add_executable(collectives collectives.cc)
target_link_libraries(collectives PRIVATE ddprun::comm)
end
run cmake -S "$work/program" -B "$work/program/build" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_PREFIX_PATH="$work/prefix" "${without[@]}"
run cmake --build "$work/program/build"
"$work/prefix/bin/ddprun" --standalone --nproc_per_node=2 "$work/program/build/collectives" | tee "$work/out"
grep -qx '\[default0\]:shm: 2 ranks, mean loss 0.25, last rank 1' "$work/out"
