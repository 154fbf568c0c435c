#!/usr/bin/env bash
# usage: debian.sh BUILD_FOLDER CPACK
# Makes the packages of a build, unpacks them, and runs what they have. scripts/test-bare --package installs them.
set -euo pipefail
build=$1 cpack=$2
for tool in dpkg-deb dpkg-shlibdeps file; do
  command -v $tool >/dev/null || { echo "skipped: there is no $tool here"; exit 4; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$build" && "$cpack" -G DEB -B "$work/packages" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip) >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
depends() { dpkg-deb -f "$work"/packages/"$1"_*.deb Depends; }
depends ddprun | grep -q 'libgloo0'
if depends ddprun | grep -Eq 'libopenmpi|libmpich'; then echo "the programs need an MPI"; exit 1; fi
depends ddprun-dev | grep -Eq '^ddprun \(= [0-9.]+\), libboost-dev'
for package in ddprun ddprun-dev; do dpkg-deb -x "$work"/packages/${package}_*.deb "$work/root"; done
test -s "$work/root/usr/share/man/man1/ddprun.1"
test -s "$work/root/usr/include/ddprun/worker/comm/process_group.h"
test -s "$work"/root/usr/lib/cmake/ddprun/ddprun-config.cmake
cd /
"$work/root/usr/bin/ddprun" --standalone --nproc_per_node=2 "$work/root/usr/share/ddprun/configs/linear.cfg" \
  --train.max_steps=2 | tee "$work/out"
grep -q 'done: 2 steps' "$work/out"
