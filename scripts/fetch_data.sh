#!/usr/bin/env bash
# Downloads a dataset's files and verifies them. A file is renamed into place only once it is verified.
#   scripts/fetch_data.sh [mnist|fashion_mnist|cifar10|cifar100] [DIR]        DIR: data/mnist, data/cifar10, ...
# LOCKSTEP_DATA_MIRROR=URL names a mirror that is tried first. Valid files are not downloaded again.
set -euo pipefail

fail() { # exit code, sentence
  echo "fetch_data.sh: $2" >&2
  exit "$1"
}

data_set=${1:-mnist}
[[ $# -le 2 ]] || fail 64 "takes at most a dataset (mnist, fashion_mnist, cifar10 or cifar100) and a directory."

# Name, SHA-256 of the published .gz file, SHA-256 of its content. The second accepts files that were compressed again;
# "-" where it is unknown. An archive is unpacked into the directory `unpacked_as`.
unpacked_as=
case $data_set in
  mnist)
    mirrors=(https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist
      http://yann.lecun.com/exdb/mnist)
    files=(
      "train-images-idx3-ubyte.gz 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
        ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
      "train-labels-idx1-ubyte.gz 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
        65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
      "t10k-images-idx3-ubyte.gz 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
        0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
      "t10k-labels-idx1-ubyte.gz f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
        ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2")
    ;;
  fashion_mnist)
    mirrors=(http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
      https://storage.googleapis.com/tensorflow/tf-keras-datasets)
    files=(
      "train-images-idx3-ubyte.gz 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84 -"
      "train-labels-idx1-ubyte.gz a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845 -"
      "t10k-images-idx3-ubyte.gz 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073 -"
      "t10k-labels-idx1-ubyte.gz 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5 -")
    ;;
  cifar10)
    mirrors=(https://www.cs.toronto.edu/~kriz)
    files=("cifar-10-binary.tar.gz c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd -")
    unpacked_as=cifar-10-batches-bin
    ;;
  cifar100)
    mirrors=(https://www.cs.toronto.edu/~kriz)
    files=("cifar-100-binary.tar.gz 58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec -")
    unpacked_as=cifar-100-binary
    ;;
  -h | --help)
    sed -n '2,4s/^# //p' "$0"
    exit 0
    ;;
  *) fail 64 "knows no dataset '$data_set'; name mnist, fashion_mnist, cifar10 or cifar100." ;;
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
command -v sha256sum >/dev/null || fail 69 "needs sha256sum (coreutils); install it."

is_valid() { # file, SHA-256 of the .gz file, SHA-256 of its content
  [[ -f $1 ]] || return 1
  [[ $(sha256sum <"$1") == "$2  -" ]] && return 0
  [[ $3 != - && $(gzip --decompress --stdout <"$1" 2>/dev/null | sha256sum) == "$3  -" ]]
}

mkdir -p "$directory" || fail 74 "cannot create the directory $directory; check its permissions."
partial=$(mktemp -d "$directory/.fetch.XXXXXX") || fail 74 "cannot write to $directory; check its permissions."
trap 'rm -rf "$partial"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fetch() { # name, SHA-256 of the .gz file, SHA-256 of its content
  local mirror arrived=no
  for mirror in "${mirrors[@]}"; do
    if ! download "$mirror/$1" "$partial/$1"; then
      echo "fetch_data.sh: cannot download $1 from $mirror." >&2
    elif is_valid "$partial/$1" "$2" "$3"; then
      chmod 644 "$partial/$1"
      mv "$partial/$1" "$directory/$1" # same file system, so the rename is atomic
      echo "$directory/$1: fetched from $mirror"
      return
    else
      arrived=yes
      echo "fetch_data.sh: $mirror/$1 has the wrong SHA-256 ($(sha256sum <"$partial/$1" | cut -d' ' -f1))." >&2
    fi
  done
  if [[ $arrived == yes ]]; then
    fail 65 "every mirror's $1 has the wrong SHA-256; try again later, or name a mirror with LOCKSTEP_DATA_MIRROR."
  fi
  fail 74 "cannot download $1: no mirror is reachable; check the network, copy the files to $directory, name a mirror \
with LOCKSTEP_DATA_MIRROR, or train on the synthetic data."
}

for file in "${files[@]}"; do
  read -r name packed unpacked <<<"${file//$'\n'/ }"
  if is_valid "$directory/$name" "$packed" "$unpacked"; then
    echo "$directory/$name: already there"
  else
    fetch "$name" "$packed" "$unpacked"
  fi
done

if [[ -n $unpacked_as && ! -d $directory/$unpacked_as ]]; then
  tar -xzf "$directory/$name" -C "$partial" --no-same-owner || fail 74 "cannot unpack $directory/$name; free some space."
  mv "$partial/$unpacked_as" "$directory/$unpacked_as"
  echo "$directory/$unpacked_as: unpacked"
fi
