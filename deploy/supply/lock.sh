#!/bin/sh
# Writes what an installation takes, by version and SHA-256. Versions are those of constraints.txt.
#
# uv.lock     uv, which knows where the CPU build of torch lies
# base.lock   everything that `edgeflock[server]` needs but torch and what comes with it alone
# torch.lock  torch and torchvision of the package index: the CPU build on aarch64, the CUDA build on x86-64. The CPU
#             build of x86-64 lies in an index of its own and is pinned by its version alone (constraints.txt).
set -eu
cd "$(dirname "$0")/../.."
uv=$(command -v .venv/bin/uv || command -v uv)
here=deploy/supply
aside=$(mktemp -d)
trap 'rm -rf "$aside"' EXIT
head="# Made by \`make lock\`: what an installation takes, by version and SHA-256."

# Wheels that lie on this machine's disk are nobody else's.
compile() {
  UV_FIND_LINKS='' "$uv" pip compile --quiet "$@" --universal --python-version 3.11 --generate-hashes --only-binary :all: \
    -c constraints.txt --no-header --no-annotate
}
extra="pyproject.toml --extra server"

echo uv | compile - > "$aside/uv"
compile $extra > "$aside/all"
its_own=$(sed -nE 's/^((nvidia|cuda)-[a-z0-9-]+|torch|torchvision|triton)==.*/--no-emit-package \1/p' "$aside/all")
compile $extra $its_own > "$aside/base"
compile $extra $(sed -nE 's/^([a-z0-9-]+)==.*/--no-emit-package \1/p' "$aside/base") > "$aside/torch"
for lock in uv base torch; do
  { echo "$head"; cat "$aside/$lock"; } > "$here/$lock.lock"
done
