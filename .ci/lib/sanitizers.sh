# The builds with sanitizers, which compile beside the stages before them, and their tests.

# How long all tests of a preset take at most on two cores, in seconds.
declare -rA sanitized_seconds=([tsan]=900 [asan]=1000)
declare -A begun=()

build_sanitized() {  # preset
  mkdir -p "build-$1"
  {
    # The build without sanitizers has shown the warnings.
    cmake --preset "$1" -DDDPRUN_BUILD_BENCH=OFF -DDDPRUN_UNITY=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF
    exec nice -n 19 ninja -C "build-$1" "$1_tests"
  } >"build-$1/setup.log" 2>&1 &
  building=$!
}

# Begins the build of the next preset that has its turn, if any, and if the time allows.
build_next_sanitized() {  # seconds that have to be left
  local part
  (($(seconds_left) >= $1)) || return 0
  for part in "${parts[@]}"; do
    if [[ -v sanitized_seconds[$part] && ! -v begun[$part] ]]; then
      begun[$part]=1
      build_sanitized "$part"
      return
    fi
  done
}

# A build that takes longer than the run may is ended: no time is left for its tests then.
await_sanitized() {  # preset, whose build has begun
  until_limit "$building" &
  local watch=$! code=0
  wait "$building" || code=$?
  kill "$watch" 2>/dev/null || true
  building=
  if ((code != 0 && $(seconds_left) > 0)); then
    tail -n 60 "build-$1/setup.log"
    exit 1
  fi
}

# Ends the process at the run's limit.
until_limit() {  # process
  sleep "$(seconds_left)" &
  trap 'kill $! 2>/dev/null' EXIT
  wait $!
  kill "$1" 2>/dev/null
}

# With less time than all take, each second, third, ... test runs; which ones depends on the commit.
test_sanitized() {  # preset, seconds to use
  local preset=$1 seconds=$2 selection=() code=0
  if ((seconds < 60)); then
    not_run "the tests of $preset" "no time is left"
    return
  fi
  local stride=$(((sanitized_seconds[$preset] + seconds - 1) / seconds))
  if ((stride > 1)); then
    local first=$((0x$(git rev-parse --short=7 HEAD) % stride + 1))
    selection=(-I "$first,,$stride")
    not_run "$((stride - 1)) of $stride tests of $preset" "$seconds s for tests that take ${sanitized_seconds[$preset]}"
  fi
  echo "ci: $preset"
  timeout --signal=INT --kill-after=30 "$(seconds_left)" ctest --test-dir "build-$preset" -L "$preset" "${sanitized_tests[@]}" \
    "${selection[@]}" --no-tests=error --output-on-failure -j4 | tee "build-$preset/tests.log" || code=$?
  if ((code == 0)); then return; fi
  if (($(seconds_left) == 0)) && ! grep -qE '\*\*\*(Failed|Exception|Timeout)' "build-$preset/tests.log"; then
    not_run "the rest of the tests of $preset" "no time was left"
    return
  fi
  suspect "build-$preset"
}
