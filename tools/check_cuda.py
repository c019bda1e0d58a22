"""check_cuda.py BUILD: what the compiler made of the kernels, without a GPU.

Fails where ptxas has serialised the tensor cores' products (C7510 to C7515), ignored setmaxnreg
(C7508) or spilled more than a few registers, and where the machine code of a Hopper kernel has no HGMMA.
"""

import pathlib
import re
import shutil
import subprocess
import sys

WARNING = re.compile(r"\bC75(08|1[0-5])\b")
SPILLED = re.compile(r"(\d+) bytes stack frame, \d+ bytes spill stores")
REGISTERS = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'.*?Used (\d+) registers", re.S)
# Bytes of a thread, which is in one role: stores would be counted of all roles of a kernel. A few numbers that a step
# reads once cost less than blocks of half the size.
MOST_SPILLED = 40
HOPPER = ("forward_instances.", "backward_instances.", "forward_wide.", "backward_wide.")


def cuobjdump(nvcc):
    beside = pathlib.Path(nvcc).resolve().parent / "cuobjdump"
    return str(beside) if beside.exists() else shutil.which("cuobjdump")


def nvcc_of(build):
    cache = (build / "CMakeCache.txt").read_text()
    return re.search(r"^CEPHALO_NVCC:\w+=(.*)$", cache, re.M).group(1)


def products_by_kernel(tool, path):
    """{kernel: how many HGMMA it has}"""
    code = subprocess.run([tool, "-sass", path], check=True, capture_output=True, text=True).stdout
    functions = re.split(r"^\s*Function : ", code, flags=re.M)[1:]
    return {text.split(None, 1)[0]: text.count("HGMMA") for text in functions}


def problems(build):
    logs = sorted(build.glob("cuda/**/*.cu.o.ptxas"))
    if not logs:
        yield f"{build}: no kernels were compiled here"
    tool = cuobjdump(nvcc_of(build))
    if tool is None:
        yield "cuobjdump is missing: tools/deps cuda installs it"
    for log in logs:
        name, text = log.name.removesuffix(".o.ptxas"), log.read_text()
        for line in text.splitlines():
            if WARNING.search(line):
                yield f"{name}: {line}"
        spilled = max(map(int, SPILLED.findall(text)), default=0)
        if spilled > MOST_SPILLED:
            yield f"{name}: {spilled} bytes of registers are on the stack"
        used = [int(registers) for _, _, registers in REGISTERS.findall(text)]
        if not used:
            continue  # the host's code alone
        line = f"{name}: {len(used)} kernels, at most {max(used)} registers"
        if name.startswith(HOPPER) and tool is not None:
            counts = {kernel: count for kernel, count in
                      products_by_kernel(tool, log.with_suffix("")).items() if "attend_" in kernel}
            yield from (f"{name}: {kernel} has no HGMMA" for kernel, n in counts.items() if n == 0)
            line += f", {min(counts.values())} to {max(counts.values())} HGMMA in each"
        print(line)


def main():
    found = list(problems(pathlib.Path(sys.argv[1])))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
