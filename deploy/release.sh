#!/usr/bin/env bash
# deploy/release.sh [OUT]: archives of HEAD for Linux and macOS, amd64 and arm64, and their SHA256SUMS, into OUT (dist).
# What is built is the commit, whatever the working tree holds. The same commit, tags and Go give the same bytes anywhere.
# It needs Go, git, and GNU tar.
set -euo pipefail
out=$(readlink -f "${1:-dist}")
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

PLATFORMS=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)
VERSION=$(git describe --tags --always)
COMMIT=$(git rev-parse HEAD)
DATE=$(git show -s --format=%ct HEAD)
tar=$(command -v gtar || command -v tar)
"$tar" --version | grep -q 'GNU tar' || { echo "release: $tar is not GNU tar (on macOS: brew install gnu-tar)" >&2 && exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/src"
git archive HEAD | "$tar" -x -C "$work/src"
archives=()
for platform in "${PLATFORMS[@]}"; do
  name=invalidator_${VERSION}_${platform/\//_}
  dir=$work/$name
  mkdir "$dir"
  echo "release: $name, $(go env GOVERSION)" >&2
  (cd "$work/src" && env -u GOFLAGS CGO_ENABLED=0 GOOS="${platform%/*}" GOARCH="${platform#*/}" GOAMD64=v1 GOARM64=v8.0 \
    go build -trimpath -buildvcs=false -tags timetzdata \
    -ldflags "-s -w -buildid= -X invalidator/internal/obs.version=$VERSION -X invalidator/internal/obs.commit=$COMMIT" \
    -o "$dir/invalidator" ./cmd/invalidator)
  cp -r "$work/src"/{LICENSE,README.md,invalidator.example.yaml} "$dir"
  [[ $platform != linux/* ]] || cp -r "$work/src/deploy/systemd" "$dir"
  "$tar" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$DATE" --format=ustar -C "$work" -c "$name" | gzip -9n >"$out/$name.tar.gz"
  archives+=("$name.tar.gz")
done
cd "$out"
sha256sum "${archives[@]}" >SHA256SUMS
cat SHA256SUMS
