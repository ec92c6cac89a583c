#!/usr/bin/env python3
"""Compares how many instructions a task takes with what instructions.txt has; more than 5 % above fails.

Each case runs under valgrind's callgrind with N tasks and with 2 N: in the difference, start, warm-up and end cancel
out. Other compilers, flags and processors have other figures, so with those nothing is compared, only printed.

exit status: 0 nothing is worse, or nothing was compared; 1 a figure is worse, or is not recorded; 2 it cannot be
counted
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

RECORDED = pathlib.Path(__file__).resolve().with_suffix(".txt")
TASKS = 10_000  # N
SLACK = 0.05
TIMEOUT = 120  # seconds for one run, which takes one or two


class Problem(Exception):
    """Why nothing can be counted."""


def output_of(command):
    """What a command prints, with its errors."""
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                timeout=TIMEOUT)
    except FileNotFoundError:
        missing = "install the package valgrind" if command[0] == "valgrind" else "build it first"
        raise Problem(f"there is no {command[0]}: {missing}") from None
    except OSError as error:
        raise Problem(f"{command[0]} does not run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Problem(f"{' '.join(command)} hangs") from None
    if result.returncode != 0:
        raise Problem(f"{' '.join(command)} fails\n{result.stdout.strip()}")
    return result.stdout


def instructions(program, case, tasks):
    with tempfile.NamedTemporaryFile(prefix="turnkey-instructions-") as profile:
        output = output_of(["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile.name}", program, case,
                            str(tasks)])
    collected = re.search(r"Collected : (\d+)", output)
    if not collected:
        raise Problem(f"valgrind does not say what it collected\n{output.strip()}")
    return int(collected.group(1))


def per_task(program, case):
    return round((instructions(program, case, 2 * TASKS) - instructions(program, case, TASKS)) / TASKS)


def recorded():
    """(what it was built with, {case: instructions})"""
    if not RECORDED.exists():
        return "nothing", {}
    head, *lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return head.removeprefix("# "), {case: int(figure) for case, figure in (line.split() for line in lines)}


def record(built, figures):
    width = max(map(len, figures))
    lines = [f"# {built}", *(f"{case:{width}} {figure:5}" for case, figure in figures.items())]
    RECORDED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def percent(change):
    return f"{100 * change:+.1f} %"


def judge(before, figures):
    """([what fails], [what is only told])"""
    problems, notes = [], []
    for case, now in figures.items():
        if not before.get(case):
            problems.append(f"{case} is not recorded (--update)")
        elif now > before[case] * (1 + SLACK):
            problems.append(f"{case} takes {now} instructions, {percent(now / before[case] - 1)}: more than it may")
        elif now < before[case] * (1 - SLACK):
            notes.append(f"{case} takes {now} instructions, {percent(now / before[case] - 1)}: record it (--update)")
    problems += [f"{case} is recorded, and there is no such case (--update)" for case in before if case not in figures]
    return problems, notes


def check(program, update):
    output_of(["valgrind", "--version"])
    built = output_of([program, "--built"]).strip()
    cases = output_of([program, "--list"]).split()
    recorded_with, before = recorded()

    figures = {}
    width = max(map(len, cases))
    print(f"{'case':{width}}  instructions  recorded   change")
    for case in cases:
        figures[case] = now = per_task(program, case)
        was = before.get(case)
        print(f"{case:{width}}  {now:12}  {was or '-':>8}  {percent(now / was - 1) if was else '-':>7}", flush=True)

    summary = f"{len(cases)} cases, ordered-u64-1k takes {figures['ordered-u64-1k']} instructions"
    if update:
        record(built, figures)
        print(f"{summary}; recorded for {built}")
        return 0
    if built != recorded_with:
        print(f"{summary}; not compared: this is {built}, recorded is {recorded_with}")
        return 0
    problems, notes = judge(before, figures)
    for line in problems + notes:
        print(line)
    changes = [figures[case] / was - 1 for case, was in before.items() if case in figures]
    if changes:
        summary += f"; changes are {percent(min(changes))} to {percent(max(changes))}"
    print(summary)
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="instructions, as it was built")
    parser.add_argument("--update", action="store_true", help="write instructions.txt anew")
    options = parser.parse_args()
    try:
        return check(options.program, options.update)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
