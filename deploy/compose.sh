#!/bin/sh
# Runs a server and its clients in containers; ends with the server's exit code. Arguments go to `docker compose up`.
cd "$(dirname "$0")/.." || exit 1

# The server's container and when it was last started; nothing if there is none, or one that never was.
life() {
  server=$(docker compose ps --all --quiet server 2>/dev/null) && [ -n "$server" ] || return 0
  started=$(docker inspect --format '{{.State.StartedAt}}' "$server" 2>/dev/null)
  case $started in 0001-*) ;; *) echo "$server $started" ;; esac
}

before=$(life)
docker compose up --build "$@"
ended=$?
after=$(life)
[ -n "$after" ] || exit "$((ended ? ended : 1))"  # nothing was started
[ "$ended" -eq 0 ] || [ "$after" != "$before" ] || exit "$ended"  # what is there has the code of a run of before
exit "$(docker inspect --format '{{.State.ExitCode}}' "${after%% *}")"
