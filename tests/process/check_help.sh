#!/usr/bin/env bash
# usage: check_help.sh PROGRAM PAGE
# Compares the program's --help with the page's block of ```text.
diff <("$1" --help) <(sed -n '/^```text$/,/^```$/{//!p}' "$2")
