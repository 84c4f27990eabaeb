#!/usr/bin/env bash
# Runs fl-client as on a Raspberry Pi, emulated by qemu: on an x86-64 Debian, without root, container or binfmt.
#
#   arm64.sh prepare DIR              Debian's arm64 Python and this project into DIR, 750 MB; again: brings it up to date
#   arm64.sh python DIR CPU ARGS...   the emulated python
#   arm64.sh client DIR CPU ARGS...   the emulated fl-client
#
# CPU: cortex-a53 (Pi 3, Zero 2 W; has the least), cortex-a72 (Pi 4) or cortex-a76 (Pi 5). It must be named, because
# qemu's own default has every instruction that there is. python and client replace this script: its process id is
# that of the emulated process, and so is its exit code.
# Needs qemu-user-static (as root: apt-get install qemu-user-static), apt-get with sources that serve arm64, and uv.
set -euo pipefail

project=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
cpus=(cortex-a53 cortex-a72 cortex-a76)
packages=(python3 libstdc++6 libgomp1)  # with all that they depend on; the libraries are for torch

die() { echo "arm64.sh: $*" >&2; exit 2; }
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
need() { command -v "$1" > /dev/null || die "$1 is missing: $2"; }
find_qemu() {
  qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) ||
    die "qemu-aarch64-static is missing: as root, apt-get install qemu-user-static"
}
told() { echo "$1, $(du -sm "$2" | cut -f1) MB, $((SECONDS - $3)) s"; }

# Debian's arm64 Python, unpacked into DIR/root. apt gets a state of its own, where nothing is installed: nothing of
# this machine's apt changes, but its sources, keys and proxies are used where they are.
prepare_root() {
  local began=$SECONDS apt=$dir/apt part=$dir/root.part name
  [ ! -d "$dir/root" ] || { told "root: there already" "$dir/root" "$began"; return; }  # whole: see the mv
  for name in apt-get dpkg-deb; do need $name "this takes Debian or its kin"; done
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
  : > "$apt/status"
  # -c: read after this machine's own files, so that it wins. The hooks that it clears are meant for the machine.
  cat > "$apt/apt.conf" <<END
APT::Architecture "arm64";
#clear APT::Architectures;
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
END
  apt-get -c "$apt/apt.conf" -qq update || die "the package lists for arm64 could not be fetched; apt says why above"
  apt-get -c "$apt/apt.conf" -qq install --download-only "${packages[@]}" > "$apt/log" 2>&1 ||
    { cat "$apt/log" >&2; die "apt has no ${packages[*]} for arm64: do its sources serve arm64, without arch=amd64?"; }
  # lib and its like are links into usr, and must be there first; dpkg-deb -x would replace them by folders.
  rm -rf "$part" && mkdir -p "$part"/usr/{bin,sbin,lib}
  for name in bin sbin lib; do ln -s usr/$name "$part/$name"; done
  for name in "$apt"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$name" | tar -x --keep-directory-symlink --no-same-owner -C "$part"
  done
  mv "$part" "$dir/root"
  told "root: $(readlink "$dir/root/usr/bin/python3")" "$dir/root" "$began"
}

# The project and its pinned dependencies in DIR/site, as wheels for aarch64. This takes uv: pip would evaluate
# "platform_machine == 'aarch64'" for the machine that it runs on.
prepare_site() {
  local began=$SECONDS python
  need uv "make setup, then PATH=.venv/bin:\$PATH"
  unset PIP_FIND_LINKS UV_FIND_LINKS UV_TORCH_BACKEND  # what this machine has is for x86-64
  [ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"
  python=$(readlink "$dir/root/usr/bin/python3")  # python3.11
  uv pip install -q --no-config --python-platform aarch64-manylinux_2_28 --python-version "${python#python}" \
    --only-binary :all: --no-binary edgeflock --reinstall-package edgeflock --target "$dir/site" \
    -c "$project/constraints.txt" "$project" || die "the wheels for aarch64 could not be installed; uv says why above"
  told "site: $(basename "$dir"/site/torch-*.dist-info .dist-info)" "$dir/site" "$began"
}

# Becomes the emulated python on a CPU; it sees nothing of this machine's Python.
emulate() {
  local cpu=${1:-} qemu
  find_qemu
  [[ -d $dir/root && -d $dir/site ]] || die "$dir is not prepared: arm64.sh prepare $dir"
  [[ " ${cpus[*]} " == *" $cpu "* ]] || die "'$cpu' is no CPU of a Raspberry Pi; those are: ${cpus[*]}"
  unset PYTHONHOME LD_PRELOAD LD_LIBRARY_PATH
  export PYTHONPATH=$dir/site PYTHONNOUSERSITE=1
  ulimit -c 0  # qemu would write a core file for an illegal instruction
  exec "$qemu" -cpu "$cpu" -L "$dir/root" "$dir/root/usr/bin/python3" "${@:2}"
}

[ $# -ge 2 ] || usage
command=$1 dir=$(realpath -m "$2"); shift 2
case $command in
  prepare) find_qemu; mkdir -p "$dir"; prepare_root; prepare_site ;;
  python) emulate "$@" ;;
  client) emulate "${1:-}" "$dir/site/bin/fl-client" "${@:2}" ;;
  *) usage ;;
esac
