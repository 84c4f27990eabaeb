#!/bin/sh
# Runs a server and its clients in containers; ends with the server's exit code. Arguments go to `docker compose up`.
cd "$(dirname "$0")/.." || exit 1
docker compose up --build "$@"
ended=$?
server=$(docker compose ps --all --quiet server) && [ -n "$server" ] || exit "$((ended ? ended : 1))"  # nothing was made
exit "$(docker inspect --format '{{.State.ExitCode}}' "$server")"
