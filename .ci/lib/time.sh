# The time of a run: what each stage took, and what is left. A run that is ended from outside says nothing, so the stages
# that can be shortened or left out are, and the run's last lines name them.

run_limit=3500  # seconds: a run takes less than an hour
stages=()
left_out=()

seconds_left() { echo $((SECONDS < run_limit ? run_limit - SECONDS : 0)); }

run_stage() {  # name, command...
  local name=$1
  shift
  "$@"
  stages+=("$name $SECONDS s")
}

run_stage_if_time() {  # seconds that the stage takes, name, command...
  local needed=$1
  shift
  if (($(seconds_left) < needed)); then
    not_run "$1" "$(seconds_left) s left, it takes $needed"
  else
    run_stage "$@"
  fi
}

not_run() { left_out+=("$1: $2"); }  # what, why

say_stages() {
  printf 'ci: done with %s\n' "${stages[@]}"
  ((${#left_out[@]} == 0)) || printf 'ci: NOT RUN: %s\n' "${left_out[@]}"
}
