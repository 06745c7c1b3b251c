#!/usr/bin/env bash
# Builds Lockstep's container image from this checkout, with the first of docker, podman and buildah that works.
#   --tag TAG                the image's name (lockstep:cpu; lockstep:gpu with --gpu, lockstep:dev with --target dev)
#   --gpu                    build for NVIDIA GPUs, from docker/Dockerfile.gpu
#   --engine ENGINE          use docker, podman or buildah
#   --base IMAGE             use another base; NAME:TAG@sha256:DIGEST pins its bytes
#   --ccache DIR             of podman and buildah: share ccache's directory with this machine's builds
#   --target dev             build the stage with compilers and sources, on which you can build model programs
#   --base-from-debootstrap  make a stand-in for the base with debootstrap, as root, instead of pulling it. For trials
#                            and tests: it has no security updates. Also used if the base cannot be pulled.
# Settings of podman and buildah (CONTAINERS_STORAGE_CONF, BUILDAH_ISOLATION, ...) apply.
# Exit codes: 64 usage error, 74 build failed, 75 the base or the engine is unreachable; try again.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "build_image.sh: $1" >&2; }
fail() { # exit code, sentence
  say "$2"
  exit "$1"
}

tag=
gpu=0
engine=
base=
target=
ccache=
from_debootstrap=0
while [ $# -gt 0 ]; do
  case $1 in
    --gpu) gpu=1 ;;
    --base-from-debootstrap) from_debootstrap=1 ;;
    --tag | --engine | --base | --target | --ccache)
      [ -n "${2:-}" ] || fail 64 "$1 needs a value."
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    -h | --help)
      sed -n '2,/^# Exit/s/^# \{0,1\}//p' "scripts/$(basename "$0")"
      exit 0
      ;;
    *) fail 64 "there is no option '$1'; --help lists them." ;;
  esac
  shift
done
case $engine in
  "" | docker | podman | buildah) ;;
  *) fail 64 "--engine must be docker, podman or buildah, not $engine." ;;
esac

if [ $gpu = 1 ]; then device=gpu file=docker/Dockerfile.gpu; else device=cpu file=docker/Dockerfile; fi
if [ -z "$base" ]; then base=$(sed -n 's/^ARG BASE=//p' $file | head -n 1); fi
tag=${tag:-lockstep:${target:-$device}}

# Builds in a chroot need no container runtime and no network namespace. The image is the same.
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}

works() { command -v "$1" >/dev/null && "$1" info >/dev/null 2>&1; }
if [ -n "$engine" ]; then
  command -v "$engine" >/dev/null || fail 64 "--engine $engine: it is not installed."
  works "$engine" || fail 75 "$engine does not work here; run '$engine info' for the reason."
else
  for candidate in docker podman buildah; do
    if works "$candidate"; then
      engine=$candidate
      break
    fi
  done
  [ -n "$engine" ] || fail 64 "neither docker nor podman nor buildah works here; install one, for instance: \
apt-get install --no-install-recommends buildah"
fi

has_image() {
  if [ "$engine" = buildah ]; then
    buildah inspect --type image "$1" >/dev/null 2>&1
  else
    "$engine" image inspect "$1" >/dev/null 2>&1
  fi
}

make_base() { # image
  local base=$1 tree suite mirror container
  suite=$(sed -nE 's#^(docker\.io/library/)?debian:([a-z]+)(-[0-9]+)?(-slim)?$#\2#p' <<<"$base")
  [ -n "$suite" ] || fail 75 "$base is not here, and debootstrap can make a stand-in only for debian:SUITE."
  [ "$(id -u)" = 0 ] || fail 75 "$base is not here, and debootstrap can make a stand-in only as root."
  command -v debootstrap >/dev/null ||
    fail 75 "$base is not here; install debootstrap to make a stand-in."
  # the first Debian mirror in this machine's apt sources
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null | grep -v '^#' |
    grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ' || true)
  mirror=${mirror:-http://deb.debian.org/debian}
  say "making a stand-in for $base with debootstrap"
  mkdir -p build
  work=$(mktemp -d build/base.XXXXXX)
  trap 'rm -rf --one-file-system "$work"' EXIT
  tree=$work/tree
  debootstrap --variant=minbase "$suite" "$tree" "$mirror" >"$work/log" 2>&1 || {
    tail -n 5 "$work/log" >&2
    fail 75 "debootstrap could not make $suite from $mirror."
  }
  printf 'deb %s %s main\ndeb %s %s-updates main\n' "$mirror" "$suite" "$mirror" "$suite" >"$tree/etc/apt/sources.list"
  # Leave out what the slim image leaves out, also from packages that are installed later.
  mkdir -p "$tree/etc/dpkg/dpkg.cfg.d"
  printf 'path-exclude /usr/share/%s/*\n' doc groff info linda lintian locale man >"$tree/etc/dpkg/dpkg.cfg.d/docker"
  rm -rf "$tree"/usr/share/{doc,groff,info,linda,lintian,locale,man}/* "$tree"/var/cache/apt/archives/*.deb \
    "$tree"/var/lib/apt/lists/* "$tree"/var/log/*
  tar -C "$tree" -cf "$work/base.tar" .
  case $engine in
    docker | podman) "$engine" import "$work/base.tar" "$base" >/dev/null ;;
    buildah)
      container=$(buildah from scratch)
      buildah add --quiet "$container" "$work/base.tar" / >/dev/null
      buildah commit --quiet --rm "$container" "$base" >/dev/null
      ;;
  esac
  rm -rf --one-file-system "$work"
}

mapfile -t needed < <(sed -n 's/^ARG BUILD_BASE=//p' $file)
for image in "${needed[@]}" "$base"; do
  if has_image "$image"; then continue; fi
  if [ $from_debootstrap = 1 ]; then
    make_base "$image"
  elif ! pulled=$("$engine" pull "$image" 2>&1); then
    say "$image cannot be pulled: $(tail -n 1 <<<"$pulled")"
    make_base "$image"
  fi
done

arguments=(--file "$file" --tag "$tag" --build-arg "BASE=$base"
  --build-arg "VERSION=$(sed -nE 's/^project\(lockstep VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)"
  --build-arg "REVISION=$(git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null || echo unknown)")
if [ -n "$target" ]; then arguments+=(--target "$target"); fi
if [ -n "$ccache" ]; then
  [ "$engine" != docker ] || fail 64 "docker cannot share --ccache; use podman or buildah."
  arguments+=(--volume "$(realpath "$ccache"):/ccache" --build-arg CCACHE_DIR=/ccache)
fi
case $engine in
  docker) DOCKER_BUILDKIT=1 docker build "${arguments[@]}" . ;;
  podman) podman build --layers --pull=missing "${arguments[@]}" . ;;
  buildah) buildah build --layers --pull=missing "${arguments[@]}" . ;;
esac || fail 74 "$engine could not build $file; see the output above."

bytes() {
  if [ "$engine" = buildah ]; then
    local container
    container=$(buildah from --pull-never "$1")
    buildah run --user 0 "$container" -- du -sxB1 / | cut -f 1
    buildah rm "$container" >/dev/null
  else
    "$engine" image inspect --format '{{.Size}}' "$1"
  fi
}
all=$(bytes "$tag")
under=$(bytes "$base")
echo "$tag: built with $engine; $((all / 1000000)) MB unpacked, $(((all - under) / 1000000)) MB of it beyond its base"
