"""Pages of the C++ API: one for each room of the library, a section for each header."""

import re

from cpp_headers import FORWARD
from prose import markdown

ROOMS = {
    "attention": ("Attention", "Functions of q, k and v: attend, its gradients, weights on demand, "
                               "plans and caches."),
    "mask": ("Masks", "Which keys a query may look at."),
    "layer": ("Layers", "Multi-head attention with parameters: the layer behind every rung, its files, "
                        "gradients and saved passes."),
    "core": ("Core", "Shapes, tensors, element types, errors, threads, random numbers, and the functions "
                     "to write attention by hand with."),
    "io": ("Files", "safetensors, npy and checksums."),
    "text": ("Text", "Tokenizers, token files and windows for training."),
    "model": ("Models", "A GPT and its parts, generating text, the built-in model."),
    "train": ("Training", "Loss, optimisers, the trainer, checkpoints and gradient checks."),
    "learn": ("Learning", "The ladder's rungs, the exercise and the pipeline."),
    "view": ("Looking inside", "What heads look at: recordings, metrics, labels, pictures."),
    "c": ("C interface", "For other languages."),
}
ALIASES = {"embed": "model"}


def room_of(header):
    folders = header.split("/")[1:-1]
    if header.endswith("c_api.h"):
        return "c"
    if "layer" in folders:
        return "layer"
    return ALIASES.get(folders[0], folders[0]) if folders else None


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def anchor_of(header):
    return slug(header)


def name_anchor(name):
    return slug(name) or "operator-" + "-".join(f"{ord(c):x}" for c in name)


def shown(name):
    return f"{name.name}()" if name.kind == "function" else name.name


def code_lines(group):
    lines = [line for _, line in group.code if not FORWARD.match(line)]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def group_section(group, links, used):
    """A heading with the names, the comment, the declarations."""
    names = list(dict.fromkeys(shown(name) for name in group.names))
    title = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
    anchors = [a for a in dict.fromkeys(name_anchor(n.name) for n in group.names) if a not in used]
    used.update(anchors)
    parts = []
    if names:
        first = f" {{#{anchors[0]}}}" if anchors else ""
        extra = "".join(f'<a id="{anchor}"></a>' for anchor in anchors[1:])
        parts.append(f"### `{title}`{first}\n\n{extra}".rstrip())
    if group.comment:
        parts.append(markdown(group.comment, links))
    if code_lines(group):
        parts.append("```cpp\n" + "\n".join(code_lines(group)) + "\n```")
    return "\n\n".join(parts)


def catalogue(found, page_of):
    """Types -> where they are described."""
    links = {}
    for header, groups in found.items():
        for name in (name for group in groups for name in group.names):
            if name.kind in ("class", "struct", "concept", "enum") and room_of(header):
                links.setdefault(name.name, f"{page_of(room_of(header))}#{name_anchor(name.name)}")
    return links


def room_page(room, headers, links):
    title, lead = ROOMS[room]
    parts = [f"# {title}", lead]
    used = {anchor_of(header) for header in headers}
    for header, groups in headers.items():
        parts.append(f"## `{header}` {{#{anchor_of(header)}}}")
        parts += [group_section(group, links, used) for group in groups]
    return "\n\n".join(parts) + "\n"


def pages(found):
    """{header: groups} -> {room.md: Markdown}, {header: room.md#anchor}"""
    links = catalogue(found, lambda room: f"{room}.md")
    rooms, places = {}, {}
    for header, groups in found.items():
        room = room_of(header)
        if room is not None:
            rooms.setdefault(room, {})[header] = groups
            places[header] = f"{room}.md#{anchor_of(header)}"
    made = {f"{room}.md": room_page(room, rooms[room], links) for room in ROOMS}
    return made, places
