"""The public C++ headers, cut into what they declare.

Doxygen's XML says which names a header declares and on which lines; the text comes from the header
itself, whose comments are written to be read.
"""

import dataclasses
import re
import subprocess
import xml.etree.ElementTree as ElementTree

ROOTS = ("cephalo/cephalo.h", "cephalo/attention.h", "cephalo/c_api.h")
INCLUDE = re.compile(r'^#include "(cephalo/[^"]+)"', re.MULTILINE)
DOXYFILE = """
QUIET = YES
WARNINGS = NO
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
EXTRACT_ALL = YES
MACRO_EXPANSION = YES
PREDEFINED = CEPHALO_API=
INCLUDE_GRAPH = NO
INCLUDED_BY_GRAPH = NO
STRIP_FROM_PATH = .
"""
TYPES = ("class", "struct", "concept")
FRAME = re.compile(r'#|(?:inline )?namespace\b|extern "C"|\}(?:  // .*)?$')
FORWARD = re.compile(r"(?:class|struct) \w+;\s*(?://.*)?$")


@dataclasses.dataclass
class Name:
    """Something that a header declares outside of any class."""

    name: str
    kind: str  # class, struct, concept, enum, function, variable, typedef or define
    line: int  # from 1


@dataclasses.dataclass
class Group:
    """Declarations under one comment."""

    line: int  # of its beginning
    comment: list = dataclasses.field(default_factory=list)  # lines, without slashes
    code: list = dataclasses.field(default_factory=list)  # (number, line)
    names: list = dataclasses.field(default_factory=list)


def public_headers(root):
    """Public is what these reach; install.cmake installs the same."""
    found, unread = [], list(ROOTS)
    while unread:
        header = unread.pop(0)
        if header in found or not (root / header).exists():
            continue
        found.append(header)
        unread += INCLUDE.findall((root / header).read_text(encoding="utf-8"))
    return sorted(found)


def run_doxygen(root, headers, folder):
    folder.mkdir(parents=True, exist_ok=True)
    config = f"{DOXYFILE}\nINPUT = {' '.join(headers)}\nOUTPUT_DIRECTORY = {folder}\n"
    subprocess.run(["doxygen", "-"], input=config, text=True, cwd=root, check=True)
    return folder / "xml"


def names_by_header(xml):
    """The folder of Doxygen's XML -> {header: [Name]}, in the order of lines."""
    found = {}
    for path in sorted(xml.glob("*.xml")):
        for compound in ElementTree.parse(path).getroot().iter("compounddef"):
            scope, _, name = compound.findtext("compoundname", "").rpartition("::")
            if compound.get("kind") in TYPES and scope in ("", "cephalo"):
                add(found, compound, name, compound.get("kind"))
            if compound.get("kind") in ("namespace", "file"):
                for member in compound.iter("memberdef"):
                    add(found, member, member.findtext("name"), member.get("kind"))
    return {header: sorted(names, key=lambda n: n.line) for header, names in found.items()}


def add(found, element, name, kind):
    place = element.find("location")
    if not name.startswith("operator"):
        name = name.partition("<")[0].strip()  # a specialisation is an overload
    if place is None or "line" not in place.attrib or not name or name.startswith("@"):
        return
    names = found.setdefault(place.get("file"), [])
    if not any(other.name == name and other.line == int(place.get("line")) for other in names):
        names.append(Name(name, kind, int(place.get("line"))))


def code_of(line):
    """The line without texts and comments."""
    return re.sub(r'"(?:[^"\\]|\\.)*"|\'[{}]\'|//.*', "", line)


def without_private(lines):
    """-> (number, line) of what everybody may use"""
    kept, hidden_at = [], None
    for number, line in enumerate(lines, start=1):
        access = re.match(r"( *) (private|protected|public):$", line)
        if access:
            hidden_at = None if access.group(2) == "public" else len(access.group(1))
            while hidden_at is not None and not kept[-1][1].strip():
                kept.pop()
        if hidden_at is not None and re.match(rf" {{{hidden_at}}}}};", line):
            hidden_at = None
        if hidden_at is None:
            kept.append((number, line))
    return kept


def groups_of(text):
    """A header's text -> its Groups, without preprocessor lines and private parts."""
    groups, current, depth, unfinished = [], None, 0, False
    for number, line in without_private(text.splitlines()):
        words = line.strip()
        outside = depth == 0 and not unfinished
        if outside and (not words or FRAME.match(line) or FORWARD.match(line)):
            current = None
            continue
        is_comment = outside and words.startswith("//")
        if current is None or (is_comment and current.code):
            current = Group(number)
            groups.append(current)
        if is_comment:
            current.comment.append(words[2:].removeprefix(" "))
            continue
        current.code.append((number, line))
        code = code_of(line)
        depth += code.count("{") - code.count("}")
        unfinished = depth == 0 and bool(code.strip()) and not code.rstrip().endswith((";", "}"))
    return groups


def read_headers(root, folder):
    """-> {header: [Group]}, each with the names that it declares"""
    listed = public_headers(root)
    names = names_by_header(run_doxygen(root, listed, folder))
    found = {}
    for header in listed:
        found[header] = groups_of((root / header).read_text(encoding="utf-8"))
        for group in found[header]:
            inside = {number for number, _ in group.code}
            group.names = [name for name in names.get(header, []) if name.line in inside]
    return found


def has_comment(group, name):
    """Above the group, or behind the declaration."""
    lines = dict(group.code)
    number = name.line
    while number + 1 in lines and not re.search(r"[;{}]", code_of(lines[number])):
        number += 1
    return bool(group.comment) or "//" in lines[number]


def undocumented(found):
    """Names that no comment speaks of. One on an overload is enough; members of a class are shown
    with it, under its comment."""
    missing = []
    for header, groups in found.items():
        spoken = {name.name for group in groups for name in group.names if has_comment(group, name)}
        missing += [f"{header}:{name.line}: {name.kind} {name.name}"
                    for group in groups for name in group.names if name.name not in spoken]
    return missing
