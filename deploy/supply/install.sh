#!/bin/sh
# Installs what edgeflock[server] needs as the locks say it, into the environment of a Python: install.sh [PYTHON].
#
# TORCH_BACKEND says which build of torch: cpu, one that uv knows (cu130), or cuda, what the package index has for the
# platform (on x86-64 a CUDA build, 3 GB). A folder of wheels that pip is told of (find-links) goes before all of them.
# Everything is held to its SHA-256 but a torch of another index or of a folder: that is pinned by its version.
set -eu
python=${1:-python}
backend=${TORCH_BACKEND:-cpu}
here=$(cd "$(dirname "$0")" && pwd)
pins="-c $here/../../constraints.txt"

pip() { "$python" -m pip "$@"; }
take() { pip install --quiet --no-deps --only-binary :all: "$@"; }

take --require-hashes -r "$here/base.lock"
if [ "$backend" = cpu ] && pip config list | grep -q find-links; then
  take $pins torch torchvision
elif [ "$backend" = cuda ] || [ "$backend:$(uname -m)" = cpu:aarch64 ]; then
  take --require-hashes -r "$here/torch.lock"
else
  take --require-hashes -r "$here/uv.lock"
  [ "$backend" != cpu ] || alone=--no-deps
  "$python" -m uv pip install --python "$python" --no-cache ${alone:-} --torch-backend "$backend" $pins torch torchvision
  pip uninstall --quiet --yes uv
fi
