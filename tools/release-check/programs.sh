# Part of guest.sh: runs the test programs in /tests. A file NAME.arguments contains the arguments of the program NAME.
for program in /tests/*; do
  case $program in *.arguments | '/tests/*') continue ;; esac
  name=${program##*/}
  # shellcheck disable=SC2046
  if WEIR_TEST_REQUIRE_ROOT=1 "$program" --test-threads=1 $(cat "$program.arguments" 2>/dev/null) >/tmp/test 2>&1; then
    ok "program-$name: $(grep '^test result' /tmp/test | cut -d ';' -f 1)"
  else
    fail "program-$name" "$(grep -E '^test .*FAILED' /tmp/test | tr '\n' ' ')"
    cat /tmp/test
  fi
done
