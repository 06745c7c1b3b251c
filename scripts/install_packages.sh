#!/usr/bin/env bash
# Installs the packages that building and testing Lockstep needs, on Debian 12 and 13. It asks no questions and does not
# run apt if all packages are installed.
#   install_packages.sh           packages for building, training and scripts/test.sh
#   install_packages.sh --full    also those for scripts/test.sh --full
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config libopenmpi-dev openmpi-bin libpmix-dev libdnnl-dev libhdf5-dev libssl-dev
  zlib1g-dev libzip-dev libevent-dev libonnx-dev libprotobuf-dev libcli11-dev libfmt-dev nlohmann-json3-dev catch2 libbenchmark-dev
  python3 python3-dev python3-venv
  curl procps                               # for the commands of docs/walkthrough.md, which a test runs
  python3-jinja2 python3-yaml file dpkg-dev # CPack calls the last two
  ocl-icd-opencl-dev)                       # the CMake files of libdnnl-dev look for OpenCL
case "${1:-}" in
  "") ;;
  --full)
    packages+=(ccache shellcheck clang clang-format clang-tidy libclang-rt-dev libomp-dev)
    # the chart, rendered by Go's text/template and sprig
    packages+=(golang-go golang-github-masterminds-sprig-dev)
    # the browser that looks at report.html and draws on the page of lockstep serve
    packages+=(chromium chromium-driver)
    # pods in containers
    packages+=(podman buildah netavark aardvark-dns catatonit iptables nftables runc debootstrap iproute2)
    ;;
  *) echo "install_packages.sh: unknown option '$1'; the only option is --full" >&2; exit 64 ;;
esac

is_installed() { [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo -n)
  if ! sudo -n true 2>/dev/null; then
    echo "install_packages.sh: packages are missing; as root, run: apt-get install ${missing[*]}" >&2
    exit 64
  fi
fi

echo "Installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -qq -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 15 "$log" >&2
  echo "install_packages.sh: apt-get failed; see the output above" >&2
  exit 74
fi
