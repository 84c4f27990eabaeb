#!/bin/sh
# Writes what the image holds on this platform as a CycloneDX bill: sbom.sh [FILE].
#
# The locks are installed into an environment that is only looked at: there the licences are known, and which package
# wants which. TORCH_BACKEND as in install.sh.
set -eu
cd "$(dirname "$0")/../.."
uv=$(command -v .venv/bin/uv || command -v uv)
file=${1:-build/sbom.json}
aside=$(mktemp -d)
trap 'rm -rf "$aside"' EXIT
mkdir -p "$(dirname "$file")"

.venv/bin/python -m venv "$aside/env"
sh deploy/supply/install.sh "$aside/env/bin/python"
"$uv" pip install --quiet --python "$aside/env/bin/python" --no-deps .
"$uv" tool run --quiet --from 'cyclonedx-bom==7.5.0' cyclonedx-py environment --pyproject pyproject.toml \
  --output-reproducible --output-format JSON --output-file "$file" "$aside/env/bin/python"
echo "$file: $(grep -c '"purl"' "$file") packages"
