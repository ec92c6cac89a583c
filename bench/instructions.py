#!/usr/bin/env python3
"""How many instructions a task takes, against what is recorded in instructions.txt; more than 5 % above it fails.

usage: instructions.py PROGRAM [--update]

Counts with valgrind. Each case runs with N and with 2 N tasks; the difference is N tasks without start and end."""
import pathlib
import re
import subprocess
import sys
import tempfile

TASKS = 10000
SLACK = 1.05
RECORDED = pathlib.Path(__file__).with_name("instructions.txt")


def fail(what):
    print(what, file=sys.stderr)
    sys.exit(2)


def compiler_of(program):
    """What the compiler wrote into the program of itself, without the distribution's suffix."""
    found = re.search(rb"GCC: \([^)]*\) (\d+)|clang version (\d+)", pathlib.Path(program).read_bytes())
    if not found:
        return "unknown"
    return f"g++ {found[1].decode()}" if found[1] else f"clang {found[2].decode()}"


def count(program, case, tasks):
    with tempfile.NamedTemporaryFile() as out:
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", program, case, str(tasks)],
            capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or not found:
        fail(f"{program} {case} {tasks} failed:\n{run.stderr}")
    return int(found[1])


def main(program, update):
    try:
        listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
        subprocess.run(["valgrind", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        fail(f"{error}; this needs the built program and the package valgrind")
    cases = listed.stdout.split()
    recorded = dict(line.rsplit(None, 1) for line in RECORDED.read_text().splitlines()) if RECORDED.exists() else {}
    compiler = compiler_of(program)
    header = f"instructions per task, {compiler}, -O2:"
    comparable = next(iter(recorded), "") + " " + next(iter(recorded.values()), "") == header
    measured, worse = {}, []
    print(f"{'case':24}{'now':>8}{'recorded':>10}")
    for case in cases:
        measured[case] = now = (count(program, case, 2 * TASKS) - count(program, case, TASKS)) // TASKS
        was = int(recorded.get(case, 0))
        print(f"{case:24}{now:8}{was:10}{f'{now / was - 1:+8.1%}' if was else ''}", flush=True)
        if was == 0 or now > was * SLACK:
            worse.append(case)
    if update:
        RECORDED.write_text(header + "\n" + "".join(f"{case} {now}\n" for case, now in measured.items()))
        print(f"recorded for {compiler}")
    elif not comparable:
        print(f"not compared: this is {compiler}, and what is recorded is for another compiler")
    elif worse:
        print(f"more than {SLACK - 1:.0%} above what is recorded: {', '.join(worse)}")
        sys.exit(1)


if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--update"]):
    fail(__doc__)
main(sys.argv[1], len(sys.argv) == 3)
