# Progress of long commands, for scripts to source: on a terminal a line that is rewritten, else a line every 20 s.

progress_width=0

# Whether the next line is due; $1 is when the last one was, in SECONDS.
progress_due() { [ -t 2 ] || ((SECONDS - $1 >= 20)); }

say_progress() {  # text
  if [ -t 2 ]; then
    printf '\r%-*s' "$progress_width" "$1" >&2
    progress_width=${#1}
  else
    printf '%s\n' "$1" >&2
  fi
}

end_progress() {
  if [ -t 2 ] && ((progress_width > 0)); then printf '\r%*s\r' "$progress_width" '' >&2; fi
  progress_width=0
}

minutes_left() {  # seconds
  if (($1 < 60)); then echo "less than a minute left"; else echo "about $((($1 + 59) / 60)) min left"; fi
}

# Reads ninja's output. The rest is taken to need as long for each step as the steps so far.
show_build_progress() {  # who
  local line done total left begin=$SECONDS last=$SECONDS
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    progress_due "$last" || continue
    done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]} last=$SECONDS
    left=$(((SECONDS - begin) * (total - done) / done))
    say_progress "$1: built $done of $total steps, $(minutes_left $left)"
  done
  end_progress
}

# Reads apt-get's output with APT::Status-Fd=1: "dlstatus:1:12.5:Retrieving file 3 of 40", "pmstatus:cmake:40:Unpacking cmake".
show_apt_progress() {  # who
  local line phase percent last=$SECONDS
  while IFS= read -r line; do
    [[ $line =~ ^(dl|pm)status:[^:]*:([0-9]+) ]] || continue
    progress_due "$last" || continue
    percent=${BASH_REMATCH[2]} last=$SECONDS phase=installed
    [ "${BASH_REMATCH[1]}" = pm ] || phase=downloaded
    say_progress "$1: packages $phase: $percent %"
  done
  end_progress
}
