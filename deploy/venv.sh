#!/bin/sh
# Installs this clone into .venv, with an extra: venv.sh EXTRA [what to type again]. uv does it if it is there, else pip.
# PYTHON chooses the interpreter; UV_TORCH_BACKEND=cpu takes the CPU build of torch, with pip, too.
set -eu
cd "$(dirname "$0")/.."
extra=$1 again=${2:-make setup}
backend=${UV_TORCH_BACKEND:-}
[ "$backend" != auto ] || backend=          # only uv can find out
quiet=--quiet
[ ! -t 1 ] || quiet=            # on a terminal uv and pip show how far they are

# On x86-64 Linux the index's own torch is a CUDA build; a wheel that lies on disk comes before it.
default_is_cuda() {
  [ "$(uname -sm)" = "Linux x86_64" ] && [ -z "${UV_TORCH_BACKEND:-}" ] && [ -z "${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}" ] \
    && ! ls -d .venv/lib/python3*/site-packages/torch >/dev/null 2>&1
}

# Debian has pythons without ensurepip, in which no environment can be made.
find_python() {
  for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if "$name" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"; return
    fi
  done
}

if default_is_cuda; then
  echo "torch comes with CUDA here: about 3 GB are fetched. Without an NVIDIA GPU the CPU build does the same in 0.3 GB:"
  echo "stop this with Ctrl-C and type: $again UV_TORCH_BACKEND=cpu"
fi
python=$(find_python)
if command -v uv >/dev/null; then
  echo "installing into .venv with uv (only this once)"
  uv venv --quiet --allow-existing --python "${python:-3.11}" .venv
  uv pip install $quiet --python .venv/bin/python --compile-bytecode -c constraints.txt -e ".[$extra]"
elif [ -n "$python" ]; then
  echo "installing into .venv with pip (about a minute, only this once)"
  "$python" -m venv .venv
  if [ -n "$backend" ]; then    # pip does not know where the builds of torch lie, uv does
    .venv/bin/python -m pip install --quiet uv
    .venv/bin/uv pip install $quiet --python .venv/bin/python --compile-bytecode -c constraints.txt -e ".[$extra]"
  else
    .venv/bin/python -m pip install $quiet -c constraints.txt -e ".[$extra]"
  fi
else
  echo "edgeflock needs Python 3.11 or later with its venv module, or uv; neither was found." >&2
  exit 1
fi
