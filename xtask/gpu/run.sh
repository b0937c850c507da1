#!/usr/bin/env bash
# Runs what lies beside it on a machine with a GPU. `run.sh --help` tells the parts.
#
# Every step ends in one line of a table and has a log of its own. The table and gpu.json are written anew after each, so
# that a run that is cut short still says what came of it.

set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-$PWD/out}
device=${RADDLE_DEVICE:-cuda:0}
export RADDLE_RANDOM_COUNT=${RANDOM_COUNT:-2000}
minutes=${SOAK_MINUTES:-8}
limit=${STEP_SECONDS:-1800}
python=${PYTHON:-python3}

all=(doctor tests races sanitizer soak bench peers allocator)

help() {
    cat <<'TEXT'
Usage: run.sh [PART...]

  doctor      what is installed and whether the device works
  tests       conformance, no memory and a lost device, the demo
  races       the race suite
  sanitizer   compute-sanitizer over a subset of conformance, where it is installed
  soak        many threads for SOAK_MINUTES
  bench       measure rows
  peers       the same list on PyTorch, measure rows if there is no report yet, both side by side
  allocator   allocation traces on the allocators of PyTorch and, if it is there, RMM; whether the policies of measure replay
              decide as these do; all of them side by side

Default: all of them, in this order. Logs, reports and gpu.json go to $OUT, or ./out.

RADDLE_DEVICE   the device (default cuda:0)
RANDOM_COUNT    random calls of each op, in tests (default 2000)
SOAK_MINUTES    how long a soak takes (default 8)
STEP_SECONDS    the most that one step may take (default 1800)
FILTER          only tests whose name contains it, in tests and races
PYTHON          the Python that has PyTorch (default python3)

Example: OUT=/tmp/out SOAK_MINUTES=1 ./run.sh tests soak
TEXT
}

for part in "$@"; do
    case " ${all[*]} " in
    *" $part "*) ;;
    *)
        help
        [ "$part" = --help ] && exit 0
        exit 2
        ;;
    esac
done
[ $# -gt 0 ] && parts=("$@") || parts=("${all[@]}")

mkdir -p "$out"
chmod +x "$here"/* 2>/dev/null # what carried them may have dropped it
commit=$(cat "$here/commit" 2>/dev/null || echo unknown)
card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)
export RADDLE_COMMIT=$commit
# Kernels are compiled once for all steps, and don't come back with the results.
export RADDLE_CACHE_DIR=${RADDLE_CACHE_DIR:-${TMPDIR:-/tmp}/raddle-kernels}

# NVRTC and cuBLASLt, if the loader doesn't find them: a toolkit's, or those of PyTorch. Only for our own programs: PyTorch
# finds its own.
libraries=${LD_LIBRARY_PATH:-}
if ! ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so\.13'; then
    packages=$("$python" -c 'import site; print("\n".join(site.getsitepackages() + [site.getusersitepackages()]))' 2>/dev/null)
    for folder in /usr/local/cuda/lib64 $(printf '%s/nvidia/cu13/lib\n' $packages); do
        if [ -e "$folder/libnvrtc.so.13" ]; then
            libraries=$folder${libraries:+:$libraries}
            break
        fi
    done
fi
ours=(env "LD_LIBRARY_PATH=$libraries")

rows=()
json=()
failures=0

report() {
    {
        printf '%s, %s\n\n' "${card:-no card}" "$commit"
        printf '%-34s %-8s %8s %8s %8s %8s\n' step outcome seconds passed failed ignored
        printf '%s\n' "${rows[@]}"
    } >"$out/table.txt"
    {
        printf '{"card": "%s", "commit": "%s", "device": "%s", "failures": %d, "steps": [\n' "$card" "$commit" "$device" "$failures"
        local first=
        for line in "${json[@]}"; do
            printf '%s  %s' "$first" "$line"
            first=$',\n'
        done
        printf '\n]}\n'
    } >"$out/gpu.json"
}

# row NAME OUTCOME SECONDS PASSED FAILED IGNORED
row() {
    rows+=("$(printf '%-34s %-8s %8s %8s %8s %8s' "$@")")
    json+=("$(printf '{"name": "%s", "outcome": "%s", "seconds": %s, "passed": %s, "failed": %s, "ignored": %s}' \
        "$1" "$2" "$3" "${4/#-/null}" "${5/#-/null}" "${6/#-/null}")")
    printf '%s\n' "${rows[-1]}"
    report
}

skip() {
    row "$1" skipped 0 - - -
    echo "  $2"
}

# The sum of what libtest says about `passed`, `failed` or `ignored` in a log; - if it says nothing.
counted() {
    sed -n "s/^test result:.* \([0-9]*\) $2.*/\1/p" "$1" | awk '{sum += $1} END {print NR ? sum : "-"}'
}

# step NAME SECONDS_MAX COMMAND...
step() {
    local name=$1 seconds_max=$2 log outcome=good code start=$SECONDS
    shift 2
    log=$out/${name//[^a-zA-Z0-9_]/_}.log
    timeout --kill-after=10 "$seconds_max" "$@" >"$log" 2>&1
    code=$?
    case $code in
    0) ;;
    124 | 137) outcome=timeout ;;
    *) outcome="rc $code" ;;
    esac
    row "$name" "$outcome" $((SECONDS - start)) "$(counted "$log" passed)" "$(counted "$log" failed)" "$(counted "$log" ignored)"
    if [ $code -ne 0 ]; then
        failures=$((failures + 1))
        report
        grep -E 'panicked at|FAILED|^error|no end after' "$log" | head -8 | sed 's/^/  /'
        tail -n 12 "$log" | cut -c1-200 | sed 's/^/  | /'
    fi
    return $code
}

# target NAME [ARGUMENT...]: a test program, if it was carried.
target() {
    local name=$1
    shift
    if [ -x "$here/$name" ]; then
        step "$name" "$limit" "${ours[@]}" "RADDLE_DEVICE=$device" "$here/$name" ${FILTER:+"$FILTER"} "$@"
    else
        skip "$name" "it isn't here"
    fi
}

run_doctor() {
    step doctor 120 "${ours[@]}" "$here/raddle" doctor --json "$out/doctor.json"
    sed 's/^/  /' "$out/doctor.log"
}

run_tests() {
    target gpu
    target cuda
    target failures
    target large
    target lives
    target options
    target minilm # ignored unless RADDLE_MINILM and RADDLE_MINILM_DATA name their folders
    step demo "$limit" "${ours[@]}" "$here/raddle" demo --device "$device" --json "$out/demo.json"
}

run_races() {
    target race_suite
}

run_sanitizer() {
    local sanitizer
    sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
    if [ -z "$sanitizer" ]; then
        skip sanitizer "compute-sanitizer isn't installed"
        return
    fi
    local check=("${ours[@]}" "$sanitizer" --error-exitcode 9 --print-limit 20)
    local of_memory=(pointwise::add normalize:: reduce:: order:: product:: views:: create::copies draws::same)
    # Kernels with shared memory; racecheck sees nothing else.
    local of_races=(normalize:: reduce:: order:: product:: create::copies)
    for suite in "${of_memory[@]}"; do
        step "memcheck $suite" "$limit" "${check[@]}" --tool memcheck "$here/cuda" "$suite" --test-threads 4
    done
    for suite in "${of_races[@]}"; do
        step "racecheck $suite" "$limit" "${check[@]}" --tool racecheck "$here/cuda" "$suite" --test-threads 4
    done
}

run_soak() {
    if [ ! -x "$here/soak" ]; then
        skip soak "it isn't here"
        return
    fi
    step soak $((minutes * 60 + 300)) "${ours[@]}" "$here/soak" --device "$device" --minutes "$minutes" --json "$out/soak.json"
    tail -n 2 "$out/soak.log" | sed 's/^/  /'
}

run_bench() {
    step bench "$limit" "${ours[@]}" "$here/measure" rows --device "$device" --json "$out/bench.json"
    sed 's/^/  /' "$out/bench.log"
}

run_peers() {
    local peer=$here/torch_${device%%:*}.py
    if ! "$python" -c 'import torch' 2>/dev/null; then
        skip peers "$python has no PyTorch"
        return
    fi
    step peers "$limit" "$python" "$peer" --json "$out/peers.json"
    [ -e "$out/bench.json" ] || run_bench
    step compare 60 "$here/compare" --raddle "$out/bench.json" --peer "$out/peers.json"
    sed 's/^/  /' "$out/compare.log"
}

run_allocator() {
    local traces=("$here"/*.trace.gz) counts=$out/allocator-counts.json
    if ! "$python" -c 'import torch' 2>/dev/null; then
        skip allocator "$python has no PyTorch"
        return
    fi
    step "allocator counts" "$limit" "$python" "$here/allocator.py" "${traces[@]}" --json "$counts"
    step "allocator check" 300 "$here/measure" replay "${traces[@]}" --check "$counts" --json "$out/allocator-check.json"
    step "allocator replay" "$limit" "$here/measure" replay "${traces[@]}" --json "$out/allocator-replay.json"
    sed 's/^/  /' "$out/allocator_check.log" "$out/allocator_replay.log"
}

echo "${card:-no card}, $commit"
for part in "${parts[@]}"; do
    "run_$part"
done
echo
cat "$out/table.txt"
exit $((failures > 0))
