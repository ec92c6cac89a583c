#!/usr/bin/env python3
"""Compares rules.md with the tests: each rule is named by a test, each named rule is in rules.md, and the column
"covered by" is what the tests say. --update writes that column."""

import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parent
RULES = TESTS / "rules.md"
NUMBER = r"\d+(?:\.\d+)?"
ROW = re.compile(rf"^\| ({NUMBER}) \| (.*) \| ?([^|]*)\|$")
TEST_NAME = re.compile(rf'^\s*TEST_CASE\w*\([^"]*"({NUMBER}(?:, {NUMBER})*)[ :]', re.MULTILINE)


def rules_by_file():
    """{rule: [files that have a test for it]}"""
    found = {}
    for source in sorted(TESTS.rglob("*.cpp")):
        name = source.relative_to(TESTS).as_posix()
        for numbers in TEST_NAME.findall(source.read_text(encoding="utf-8")):
            for rule in numbers.split(", "):
                files = found.setdefault(rule, [])
                if name not in files:
                    files.append(name)
    return found


def main():
    found = rules_by_file()
    listed, problems, lines = set(), [], []
    for line in RULES.read_text(encoding="utf-8").splitlines():
        row = ROW.match(line)
        if row:
            rule, text, column = row.group(1), row.group(2), row.group(3).strip()
            actual = ", ".join(found.get(rule, []))
            if rule in listed:
                problems.append(f"{rule} stands twice in rules.md")
            listed.add(rule)
            if not actual:
                problems.append(f"{rule} has no test: {text}")
            elif column != actual:
                problems.append(f"{rule} is covered by {actual}; rules.md says {column or 'nothing'} (--update)")
            line = f"| {rule} | {text} | {actual} |" if actual else f"| {rule} | {text} | |"
        lines.append(line)
    for rule in sorted(found.keys() - listed):
        problems.append(f"{rule} is named in {', '.join(found[rule])}, and is not in rules.md")

    if "--update" in sys.argv[1:]:
        RULES.write_text("\n".join(lines) + "\n", encoding="utf-8")
        problems = [p for p in problems if not p.endswith("(--update)")]
    for problem in problems:
        print(problem)
    print(f"{len(listed)} rules, {len(listed & found.keys())} of them named by a test")
    return 1 if problems or not listed else 0


if __name__ == "__main__":
    sys.exit(main())
