#!/usr/bin/env bash
# usage: check_test_names.sh CTEST BUILD_FOLDER PAGE
# The last column of the page's table has regular expressions for `ctest -R`: each has to match a test.
set -euo pipefail
ctest=$1 build=$2 page=$3
registered=$("$ctest" --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: //p')
rows=$(grep -E '^\| [0-9]+ \|' "$page")
status=0
complain() { echo "$page: $1"; status=1; }
while IFS= read -r row; do
  number=$(cut -d' ' -f2 <<<"$row")
  mapfile -t names < <(sed -E 's/ *\|$//; s/.*\|//' <<<"$row" | grep -o '`[^`]*`' | tr -d '`')
  ((${#names[@]} > 0)) || complain "row $number names no test"
  for name in "${names[@]}"; do
    grep -qE -- "$name" <<<"$registered" || complain "row $number: no test matches '$name'"
  done
done <<<"$rows"
exit $status
