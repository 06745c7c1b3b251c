#!/usr/bin/env bash
# Fetches a data set's four IDX files, checks them, and leaves either a whole file or none.
#   scripts/fetch_data.sh [mnist|fashion_mnist] [DIR]        DIR: data/mnist or data/fashion_mnist
# LOCKSTEP_DATA_MIRROR=URL names a mirror of your own that is asked first. Files that are there and right are kept.
set -euo pipefail

fail() { # exit code, sentence
  echo "fetch_data.sh: $2" >&2
  exit "$1"
}

data_set=${1:-mnist}
[[ $# -le 2 ]] || fail 64 "takes at most a data set (mnist or fashion_mnist) and a directory."

# name, md5 of the published .gz, md5 of its content (survives packing anew; unknown for Fashion-MNIST)
case $data_set in
  mnist)
    mirrors=(https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist
      http://yann.lecun.com/exdb/mnist)
    files=(
      "train-images-idx3-ubyte.gz f68b3c2dcbeaaa9fbdd348bbdeb94873 6bbc9ace898e44ae57da46a324031adb"
      "train-labels-idx1-ubyte.gz d53e105ee54ea40749a09fcbcd1e9432 a25bea736e30d166cdddb491f175f624"
      "t10k-images-idx3-ubyte.gz 9fb629c4189551a2d022fa330f9573f3 2646ac647ad5339dbf082846283269ea"
      "t10k-labels-idx1-ubyte.gz ec29112dd5afa0611ce80d1b7f02629c 27ae3e4e09519cfbb04c329615203637")
    ;;
  fashion_mnist)
    mirrors=(http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
      https://storage.googleapis.com/tensorflow/tf-keras-datasets)
    files=(
      "train-images-idx3-ubyte.gz 8d4fb7e6c68d591d4c3dfef9ec88bf0d -"
      "train-labels-idx1-ubyte.gz 25c81989df183df01b3e8a0aad5dffbe -"
      "t10k-images-idx3-ubyte.gz bef4ecab320f06d8554ea6380940ec79 -"
      "t10k-labels-idx1-ubyte.gz bb300cfdad3c16e7a12a480ee83cd310 -")
    ;;
  -h | --help)
    sed -n '2,4s/^# //p' "$0"
    exit 0
    ;;
  *) fail 64 "knows no data set '$data_set'; name mnist or fashion_mnist." ;;
esac
directory=${2:-data/$data_set}
if [[ -n ${LOCKSTEP_DATA_MIRROR:-} ]]; then mirrors=("${LOCKSTEP_DATA_MIRROR%/}" "${mirrors[@]}"); fi

if command -v curl >/dev/null; then
  download() { curl --fail --location --silent --show-error --connect-timeout 10 --max-time 600 --output "$2" "$1"; }
elif command -v wget >/dev/null; then
  download() { wget --no-verbose --timeout=10 --tries=1 --output-document="$2" "$1"; }
else
  fail 69 "needs curl or wget; install one of them."
fi
command -v md5sum >/dev/null || fail 69 "needs md5sum (coreutils); install it."

is_right() { # file, md5 packed, md5 unpacked
  [[ -f $1 ]] || return 1
  [[ $(md5sum <"$1") == "$2  -" ]] && return 0
  [[ $3 != - && $(gzip --decompress --stdout <"$1" 2>/dev/null | md5sum) == "$3  -" ]]
}

mkdir -p "$directory" || fail 74 "cannot make the directory $directory; check its permissions."
partial=$(mktemp -d "$directory/.fetch.XXXXXX") || fail 74 "cannot write to $directory; check its permissions."
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fetch() { # name, md5 packed, md5 unpacked
  local mirror arrived=no
  for mirror in "${mirrors[@]}"; do
    if ! download "$mirror/$1" "$partial/$1"; then
      echo "fetch_data.sh: $mirror does not answer with $1." >&2
    elif is_right "$partial/$1" "$2" "$3"; then
      chmod 644 "$partial/$1"
      mv "$partial/$1" "$directory/$1" # same file system: there at once, or not at all
      echo "$directory/$1: fetched from $mirror"
      return
    else
      arrived=yes
      echo "fetch_data.sh: $mirror/$1 has the wrong check sum ($(md5sum <"$partial/$1" | cut -d' ' -f1))." >&2
    fi
  done
  if [[ $arrived == yes ]]; then
    fail 65 "no mirror has the right $1; try again later, or name a mirror with LOCKSTEP_DATA_MIRROR."
  fi
  fail 74 "$1 could not be fetched: there is no network here, or all mirrors are away; copy the files to $directory \
by hand, name a mirror with LOCKSTEP_DATA_MIRROR, or train on the embedded digits."
}

for file in "${files[@]}"; do
  read -r name packed unpacked <<<"$file"
  if is_right "$directory/$name" "$packed" "$unpacked"; then
    echo "$directory/$name: already there"
  else
    fetch "$name" "$packed" "$unpacked"
  fi
done
