#!/usr/bin/env bash
# usage: check.sh BUILD_FOLDER CONSUMER_FOLDER CXX
# Installs the build into a fresh prefix, builds the consumer against it alone, and runs what came of it.
set -euo pipefail
build=$1 consumer=$2 cxx=$3
work=$(mktemp -d)
job=
trap '[ -z "$job" ] || kill $job 2>/dev/null; rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
"$work/prefix/bin/ddprun" --version
internal=$(find "$work/prefix/include/ddprun/worker/comm" -mindepth 1 -type d)
if [ -n "$internal" ]; then echo "installed, but not public: $internal"; exit 1; fi
for page in man/man1/ddprun.1 bash-completion/completions/ddprun zsh/site-functions/_ddprun; do
  test -s "$work/prefix/share/$page"
done
cmake -S "$consumer" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/prefix/bin/ddprun" --standalone --nproc_per_node=2 "$work/build/consumer" | tee "$work/out"
grep -qx '\[default0\]:sum over 2 ranks: 3' "$work/out"
"$work/build/linear_two_ranks" | grep -q '^step 100  loss 0\.0000'
"$work/prefix/bin/ddprun" --standalone --nproc_per_node=2 "$work/build/collectives" | tee "$work/out"
grep -qx '\[default0\]:shm: 2 ranks, mean loss 0.25, last rank 1' "$work/out"
# The page shows the program as it is.
sed -n '/^```cpp$/,/^```$/p' "$consumer/../../../docs/collectives.md" | sed '1d;$d' | diff - "$consumer/collectives.cc"

printf '[model]\nplugin = %s\nname = tanh_net\n[data]\nname = spiral\n[optim]\nlr = 0.01\n' "$work/build/libspiral.so" \
  >"$work/spiral.cfg"
"$work/prefix/bin/ddprun" --standalone --nproc_per_node=2 "$work/spiral.cfg" --train.epochs=3 | tee "$work/out"
grep -Eq 'done: 237 steps, loss [0-9.]+, accuracy [0-9.]+ %' "$work/out"

# One of three ranks is killed. Its shell ends well, so that ddprun does not stop the others.
for backend in shm gloo; do
  victim= formed= told= survived=
  exec {lines}< <(exec "$work/prefix/bin/ddprun" --standalone --nproc_per_node=3 \
    sh -c '"$0" "$1"; code=$?; [ $code = 137 ] || exit $code' "$work/build/elastic" $backend 2>&1)
  job=$!
  while IFS= read -r -t 60 line <&$lines; do
    echo "$line"
    case $line in
      *':rank 1 is pid '*) victim=${line##* } ;;
      *':100 steps of 3 ranks') formed=yes ;;
      '[default0]:0 goes on without 1, which was rank 1 (pid '*'its process died or its connection broke') told=yes ;;
      '[default0]:100 steps of 2 ranks') survived=yes ;;
    esac
    if [ -n "$victim" ] && [ -n "$formed" ]; then kill -KILL "$victim"; victim=; fi
  done
  exec {lines}<&-
  [ -n "$told" ] && [ -n "$survived" ] || { echo "check: no word of the survivors over $backend"; exit 1; }
  wait $job
  job=
done
