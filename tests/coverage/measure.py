"""What the tests cover of the headers, by clang's source-based coverage: it knows neither throw edges nor what code was
made of a line, and what one instantiation of a template covers is covered."""

import json
import os
import pathlib
import re
import shutil
import subprocess

TESTS = pathlib.Path(__file__).resolve().parent.parent
PROJECT = TESTS.parent
INCLUDE = PROJECT / "include"
EXECUTABLES = ["unit", "simulation", "memory"]
COMPILERS = ["clang++-19", "clang++", "clang++-14"]
# Counters of several threads are exact only when they are atomic.
FLAGS = "-fprofile-instr-generate -fcoverage-mapping -fprofile-update=atomic -O0"
CODE_REGION, EXPANSION_REGION, SKIPPED_REGION, GAP_REGION, BRANCH_REGION = range(5)


class Problem(Exception):
    """Why there are no figures."""


class Header:
    """What is known of one header: how often each line with code ran, and both outcomes of each condition."""

    def __init__(self, path):
        self.path = path
        self.functions = {}  # (end line, column): {line: count}, over all instantiations
        self.branches = {}  # (line, column, end line, column) of a condition: [times true, times false]

    @property
    def lines(self):
        """{line: count}; a lambda says itself what ran in it, not the function around."""
        found = {}
        for lines in sorted(self.functions.values(), key=lambda f: (min(f), -max(f))):
            for line, count in lines.items():
                found[line] = max(found.get(line, 0), count) if line == min(lines) else count
        return found

    def add_regions(self, regions):
        """Line counts of one function: the largest of the regions that begin on a line and of the innermost that comes
        from above."""
        above, begins = {}, {}
        starts = {(r[0], r[1]) for r in regions if r[7] != GAP_REGION}
        regions = sorted(regions, key=lambda r: (r[0], r[1], -r[2], -r[3]))
        for first, _, last, column, count, _, _, kind in regions:
            if kind == GAP_REGION and (last, column) not in starts:
                continue  # clang says 0 for what lies between a block with a return and the next statement
            if kind in (CODE_REGION, EXPANSION_REGION):
                begins[first] = max(begins.get(first, 0), count)
            for line in range(first + 1, last + 1):
                above[line] = None if kind == SKIPPED_REGION else count
        # Where it begins is not the same for all: a constructor has initialisers before its body, but not where unused.
        lines = self.functions.setdefault(tuple(max(r[2:4] for r in regions)), {})
        for line in above.keys() | begins.keys():
            counts = [c for c in (above.get(line), begins.get(line)) if c is not None]
            if counts:
                lines[line] = max(lines.get(line, 0), *counts)

    def add_branch(self, where, true, false):
        both = self.branches.setdefault(where, [0, 0])
        both[0] += true
        both[1] += false


def call(command, **more):
    result = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", check=False, **more)
    if result.returncode != 0:
        raise Problem(f"{' '.join(str(c) for c in command)}\n{result.stdout.strip()[-4000:]}")
    return result.stdout


def find_compiler(wanted):
    for name in [wanted] if wanted else COMPILERS:
        if shutil.which(name):
            return name
    raise Problem(f"there is no {wanted or 'clang++'}")


def tool(compiler, name):
    path = call([compiler, f"-print-prog-name={name}"]).strip()
    if not shutil.which(path):
        raise Problem(f"{compiler} comes without {name}")
    return path


def build(folder, compiler, jobs):
    """The executables with counters; without precompiled headers, whose functions have none."""
    call(["cmake", "-S", PROJECT, "-B", folder, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}",
          "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_FLAGS={FLAGS}", "-DCMAKE_CXX_FLAGS_DEBUG=-g0",
          "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", "-DTURNKEY_BUILD_BENCHMARKS=OFF", "-DTURNKEY_BUILD_EXAMPLES=OFF"])
    call(["cmake", "--build", folder, "-j", jobs, "--target", *EXECUTABLES])


def run(folder, executable, profile, *arguments):
    environment = {"TURNKEY_SIM_SECONDS": "0", **os.environ, "LLVM_PROFILE_FILE": str(profile)}
    call([folder / "tests" / executable, *arguments], env=environment)


def headers_of(folder, executable, compiler, profile, headers):
    """Adds to `headers` what one run of an executable covered."""
    data = profile.with_suffix(".profdata")
    call([tool(compiler, "llvm-profdata"), "merge", "-o", data, profile])
    exported = subprocess.run([tool(compiler, "llvm-cov"), "export", folder / "tests" / executable, "-instr-profile",
                               data, INCLUDE], stdout=subprocess.PIPE, check=True).stdout
    for unit in json.loads(exported)["data"]:
        for function in unit["functions"]:
            add_function(function, headers)
    return headers


def add_function(function, headers):
    """An instantiation of a function; others of the same template are records of their own."""
    for index, name in enumerate(function["filenames"]):
        if not name.startswith(str(INCLUDE)):
            continue
        path = pathlib.Path(name).relative_to(INCLUDE).as_posix()
        header = headers.setdefault(path, Header(path))
        regions = [r for r in function["regions"] if r[5] == index]
        if regions:
            header.add_regions(regions)
        for *where, true, false, file, _, kind in function["branches"]:
            # A condition that the compiler knows counts nothing, although it is reached: it is no branch.
            if kind == BRANCH_REGION and file == index and (true or false or not reached(function, file, where)):
                header.add_branch(tuple(where), true, false)


def reached(function, file, where):
    """Whether the innermost code around a place ran."""
    around = [r for r in function["regions"] if r[5] == file and r[7] == CODE_REGION
              and (r[0], r[1]) <= (where[0], where[1]) and (where[2], where[3]) <= (r[2], r[3])]
    return bool(around) and max(around, key=lambda r: (r[0], r[1], -r[2], -r[3]))[4] != 0


class Text:
    """The lines of a header, without comments, and the marks in them."""

    MARK = re.compile(r"// uncovered:(.*)")
    STATEMENT = re.compile(r"^\s*(return|if(?! constexpr)|for|while|switch|throw|co_\w+)\b.*[;{(]")

    def __init__(self, path):
        self.lines = (INCLUDE / path).read_text(encoding="utf-8").splitlines()
        self.code = [re.sub(r"\s*//.*", "", l) for l in self.lines]
        self.marks = {}  # the line that is excused: (the line of the mark, the reason)
        for number, line in enumerate(self.lines, 1):
            match = self.MARK.search(line)
            if match:
                excused = number
                while excused < len(self.code) and not self.code[excused - 1].strip():
                    excused += 1  # a comment of its own is about what follows
                self.marks[excused] = (number, match.group(1).strip())

    def asserts(self):
        """The lines of asserts; nobody covers how one fails."""
        found, inside = set(), False
        for number, line in enumerate(self.code, 1):
            inside = inside or "TURNKEY_ASSERT(" in line
            if inside:
                found.add(number)
            inside = inside and ";" not in line
        return found

    def statements(self):
        """Lines that begin a statement, but for those that only the compiler runs."""
        found, until = [], None
        for number, line in enumerate(self.code, 1):
            if re.match(r"\s*consteval\b", line):
                until = re.match(r"\s*", line).group() + "}"
            if until is None and self.STATEMENT.match(line):
                found.append(number)
            if until is not None and line.startswith(until):
                until = None
        return found
