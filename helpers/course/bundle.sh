#!/bin/sh
# make bundle: the course and its packages in one archive, for computers without a network.
# Called by the Makefile. PYTHON is the course's, PIP the folder that holds pip; LIBTPU=1 packs
# Google's TPU compiler, too.
set -eu
cd "$(dirname "$0")/../.."

stop() {
    printf '%s\n' "$1" >&2
    exit 1
}

git rev-parse -q --verify HEAD >/dev/null 2>&1 ||
    stop "This folder is no clone, so it is not known what belongs to the course: clone the repository with git, then run make bundle there."
[ -z "$(git status --porcelain)" ] ||
    echo "Note: changes that are not committed are not in the bundle."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
fits=$("$PYTHON" -c 'import platform as p; print("%s.%s" % p.python_version_tuple()[:2], p.system(), p.machine())')
name=tensorflow-on-tpu-$version
archive=build/$name-offline-py$(echo "$fits" | tr ' ' '-' | tr '[:upper:]' '[:lower:]').tar
work=build/bundle

# Packages of an earlier bundle that are still right are not fetched again.
mkdir -p "$work/wheels"
rm -rf "$work/new"
mkdir -p "$work/new/$name/wheels"
wheels=$work/new/$name/wheels
awk -v all="${LIBTPU:-}" '/^[a-z0-9]/ { out = !all && /^libtpu==/ } !out' requirements.txt \
    >"$wheels/requirements.txt"
echo "$fits" >"$wheels/FITS"
echo "Collecting the packages for Python $fits: 1 to 2 GB, a few minutes."
PYTHONPATH="$PIP" "$PYTHON" -m pip --disable-pip-version-check --no-input download -q \
    --require-hashes --only-binary :all: --no-deps --find-links "$work/wheels" \
    -r "$wheels/requirements.txt" -d "$wheels" ||
    stop "The packages can't be collected: the reason is in the lines above. Check network and disk (5 GB), then run the same command again."
rm -rf "$work/wheels"
mv "$wheels" "$work/wheels"
mkdir "$wheels"
ln "$work/wheels"/* "$wheels"

trap 'rm -f "$archive.part"' EXIT
git archive --format=tar --prefix="$name/" HEAD | tar -xf - -C "$work/new"
tar -cf "$archive.part" -C "$work/new" "$name"
mv "$archive.part" "$archive"
rm -rf "$work/new"
(cd build && sha256sum "${archive#build/}" >"${archive#build/}.sha256")

echo "$archive: $(du -m "$archive" | cut -f1) MB, for Python $fits."
if [ -n "${LIBTPU:-}" ]; then
    echo "libtpu is inside. Its licence is the Google Cloud Platform Terms of Service, which don't let"
    echo "the course pass it on: keep this archive in your own room."
else
    echo "libtpu, Google's TPU compiler, is not inside: it is under Google's terms, not the course's to"
    echo "pass on. Where it is missing the notebooks say so; notebooks 08, 09 and 11 need it. See TEACHING.md."
fi
echo "There: tar -xf $(basename "$archive") && cd $name && make run"
