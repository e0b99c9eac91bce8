#!/bin/sh
# Make .venv from requirements.txt: exact versions, hashes required, byte-compiled.
# Called by the Makefile. PYTHON=python3.12 chooses an interpreter, otherwise the first in range.
set -u
cd "$(dirname "$0")/.." || exit 1

NEEDED_GB=6
log=$(mktemp) || { echo "Set TMPDIR to a folder that you may write to, then run the same command again." >&2; exit 1; }
trap 'rm -f "$log" "$log.failed"' EXIT
trap 'echo "Interrupted. Run the same command again: it starts the installation afresh." >&2; exit 130' INT TERM

stop() {
    printf '%s\n' "$1" >&2
    exit 1
}

# The commands tpu-course and tpu-preflight, from this folder. What builds them is in the lock:
# nothing is fetched. `compat` writes a path alone, no program that each start of Python would run.
itself="--no-deps --no-build-isolation --no-index --config-settings editable_mode=compat"
itself="$itself --editable ./tpu_preflight --editable ."

needed="3.11, 3.12 or 3.13"

in_range() {
    "$1" -c 'import sys; sys.exit("%s.%s" % sys.version_info[:2] not in sys.argv[1].replace(",", "").split())' \
        "$needed" >/dev/null 2>&1
}

python=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if in_range "$candidate"; then python=$candidate; break; fi
done
uv=$(command -v uv || true)
if [ -z "$python" ]; then
    [ -z "${PYTHON:-}" ] || stop "$PYTHON is no Python $needed: leave PYTHON out, or name one that is."
    [ -n "$uv" ] || stop "No Python $needed was found: install one (https://www.python.org/downloads/), then run the same command again."
    python=3.12 # uv fetches it
elif [ -z "$uv" ] && ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    stop "This $python can't make virtual environments: install its venv package (Debian, Ubuntu: sudo apt install python3-venv) or uv, then run the same command again."
fi

free_kb=$(df -Pk . | awk 'NR == 2 { print $4 }')
if [ "$free_kb" -lt $((NEEDED_GB * 1024 * 1024)) ]; then
    stop "Not enough disk: the packages need $NEEDED_GB GB and this disk has $((free_kb / 1024 / 1024)) GB free. Make room, then run the same command again."
fi

explain() {
    tail -n 15 "$log" >&2
    if grep -qiE 'no space left|disk quota' "$log"; then
        stop "The disk is full: make room ($NEEDED_GB GB), then run the same command again."
    elif grep -qiE 'do not match the hashes|hash mismatch' "$log"; then
        stop "A downloaded package is not the one in requirements.txt, so nothing of it was used: run the same command again, and ask your network's administrator if it happens twice."
    elif grep -qiE 'connection|name resolution|dns error|error sending request|timed out|proxy|unreachable|could not find a version|failed to fetch|failed to download' "$log"; then
        stop "The package index can't be reached: check the network (or the proxy settings), then run the same command again."
    fi
    stop "The installation failed: the reason is in the lines above."
}

# Runs a command, keeps what it says in the log, and shows how far it is: the large downloads.
watch() {
    { "$@" 2>&1 || touch "$log.failed"; } | tee -a "$log" |
        grep -E '^ *(Downloading .*[0-9]{2}(\.[0-9])? ?Mi?B|Resolved|Prepared|Installing|Installed|Bytecode)' |
        cut -c1-90
    [ ! -e "$log.failed" ] || explain
}

# An interrupted installation may have left half a package: begin with an empty folder, always.
rm -rf .venv || stop "The folder .venv can't be removed: check who owns it, then run the same command again."
echo "Installing the course's packages into .venv: once, a few minutes, 4 GB."
if [ -n "$uv" ]; then
    watch "$uv" venv -q --python "$python" .venv
    watch "$uv" pip install --python .venv/bin/python --require-hashes --only-binary :all: \
        --compile-bytecode -r requirements.txt
    watch "$uv" pip install -q --python .venv/bin/python $itself
else
    watch "$python" -m venv .venv
    # The lock has them all. Without --no-deps, pip 23 refuses it: it takes fsspec[gcs], which xprof
    # asks for, for another package than the fsspec that is pinned.
    watch .venv/bin/python -m pip install --disable-pip-version-check --no-input --require-hashes \
        --no-deps --only-binary :all: -r requirements.txt
    watch .venv/bin/python -m pip install --disable-pip-version-check --no-input -q $itself
fi
# Each of its kernels knows %explain from its start, so also after a restart, before any cell was run.
mkdir -p .venv/etc/ipython
cat >.venv/etc/ipython/ipython_kernel_config.py <<'END'
c.InteractiveShellApp.exec_lines = [
    "get_ipython().register_magic_function(lambda line: __import__('helpers.display.explain', "
    "fromlist=['*']).explain_last(line), 'line', 'explain')"
]
END
touch .venv/.installed
