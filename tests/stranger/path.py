"""The path of a stranger: from a fresh clone, by the commands of the documents, to a text of one's own looked
at, once from C++ and once from Python. Prints every command with its time; each path has fewer than ten.

    make test-stranger

It builds from nothing, so it is not part of make test."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN_TEXT = "My grandmother keeps bees. My grandmother keeps"
MOST_COMMANDS = 9


def documented(document, begin):
    """The command that begins so, from a document's shell blocks or its prose, without its comment."""
    text = (ROOT / document).read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for command in [*"".join(blocks).splitlines(), *re.findall(r"(?<!`)`([^`\n]+)`", text)]:
        if command.startswith(begin):
            return re.sub(r"\s+#.*", "", command)
    sys.exit(f"{document}: no command begins with '{begin}'")


def program_that_looks():
    """docs/look.md's program in C++, with a text of one's own."""
    blocks = re.findall(r"^```cpp\n(.*?)^```$", (ROOT / "docs/look.md").read_text(), re.MULTILINE | re.DOTALL)
    code = next(block for block in blocks if "look_at(" in block)
    code = re.sub(r'(look_at\(look_model\(model\), )"[^"]*"', rf'\1"{OWN_TEXT}"', code)
    # What it prints of the heads that it knows by number holds for a text of its length alone.
    return re.sub(r"(?m)^  const Tensor weights = .*\n.*weights\.shape\(\).*$",
                  '  std::cout << "next: " << report.predictions[0].token.label << "\\\\n";', code)


def from_cpp():
    return [
        f"git clone -q {ROOT} cephalo",
        "cd cephalo",
        documented("README.md", "make demo"),
        documented("README.md", "cmake --install"),
        documented("README.md", 'cephalo look "Any text').replace("Any text of your own", OWN_TEXT),
        documented("docs/install.md", "export PKG_CONFIG_PATH"),
        documented("docs/install.md", "c++ -std=c++20 my_program.cc"),
        "./my_program",
    ]


def from_python():
    return [
        f"git clone -q {ROOT} cephalo",
        "cd cephalo",
        documented("docs/install.md", "make deps"),
        "python3 -m venv ~/venv",  # what every text on Python says, and Debian's pip insists on
        ". ~/venv/bin/activate",
        documented("README.md", "pip install ."),
        documented("README.md", "python -c").replace("Any text of your own", OWN_TEXT),
    ]


def walk(name, commands, files, expected):
    """The commands in one shell, in an empty home; what they print has to hold what is expected."""
    print(f"{name}: {len(commands)} commands")
    assert len(commands) <= MOST_COMMANDS, f"{name}: {len(commands)} commands"
    with tempfile.TemporaryDirectory() as home:
        for path, content in files.items():
            (pathlib.Path(home) / path).write_text(content)
        # ~/.local/bin is where a login shell of Debian and Ubuntu looks too.
        environment = {**os.environ, "HOME": home, "PATH": f"{home}/.local/bin:{os.environ['PATH']}"}
        environment.pop("VIRTUAL_ENV", None)
        shell = subprocess.Popen(["bash", "-e", "-o", "pipefail"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, env=environment, cwd=home)
        said = ""
        for command in commands:
            begin = time.monotonic()
            if "my_program.cc" in command:  # written by hand, which is not a command
                print("cp ~/my_program.cc .", file=shell.stdin)
            print(f"{command}; echo __done__", file=shell.stdin, flush=True)
            for line in shell.stdout:
                if line.strip() == "__done__":
                    break
                said += line
            else:
                sys.exit(f"{said[-4000:]}\n{name}: failed: {command}")
            print(f"  {time.monotonic() - begin:7.1f} s  {command}", flush=True)
        shell.stdin.close()
        shell.wait()
    for words in expected:
        assert words in said, f"{name}: '{words}' was not printed:\n{said[-4000:]}"


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["cpp", "python"]
    if "cpp" in wanted:
        walk("from C++", from_cpp(), {"my_program.cc": program_that_looks()},
             [OWN_TEXT, "Each map is one head", "looks at", "next: "])
    if "python" in wanted:
        walk("from Python", from_python(), {}, ["grandmother"])
