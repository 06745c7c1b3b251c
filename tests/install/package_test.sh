#!/usr/bin/env bash
# Builds the .deb files, checks their contents and, as root, installs them into a scratch root.
#   package_test.sh BUILD
set -euo pipefail
build=$(realpath "$1")
command -v dpkg-deb >/dev/null || { echo "skipped: dpkg-deb is not installed"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() { echo "package_test: $*" >&2; exit 1; }
# holds PACKAGE PATTERN: fails unless PACKAGE installs a file whose path matches
holds() {
  dpkg-deb --fsys-tarfile "$1" | tar -t >"$scratch/list"
  grep -qE "$2" "$scratch/list" || fail "$1 lacks $2"
}

(cd "$build" && cpack -G DEB -B "$scratch/packages" >"$scratch/cpack.log") || { tail -n 20 "$scratch/cpack.log"; exit 1; }
programs=$(echo "$scratch"/packages/lockstep_*.deb)
library=$(echo "$scratch"/packages/liblockstep-dev_*.deb)
for package in "$programs" "$library"; do
  [ -f "$package" ] || fail "cpack made no $package"
  dpkg-deb --info "$package"
done
for name in lockstep keras_mnist custom_training_mnist; do holds "$programs" "/usr/bin/$name\$"; done
holds "$library" '/usr/include/lockstep/lockstep.hpp$'
holds "$library" '/cmake/lockstep/lockstepConfig.cmake$'
holds "$library" '/liblockstep_training.a$'
dpkg-deb -f "$programs" Depends | grep -q 'libopenmpi' || fail "the programs do not depend on Open MPI"
dpkg-deb -f "$programs" Depends | grep -q 'libdnnl' || fail "the programs do not depend on oneDNN"
for name in $(dpkg-deb -f "$library" Depends | tr -d ,); do
  dpkg-query --show "$name" >/dev/null || fail "the library depends on $name, which the build did not need"
done

mkdir -p "$scratch/root/var/lib/dpkg/updates" "$scratch/root/var/lib/dpkg/info"
touch "$scratch/root/var/lib/dpkg/status"
if [ "$(id -u)" = 0 ]; then
  dpkg --root="$scratch/root" --force-depends --force-script-chrootless --install "$programs" "$library"
  "$scratch/root/usr/bin/lockstep" --version
fi
