"""A notebook as a page, with the outputs that are stored in it."""

import json


def output_parts(output):
    if output["output_type"] == "stream":
        return [f"```text title=\"output\"\n{''.join(output['text']).rstrip()}\n```"]
    data = output["data"]
    if "text/html" in data:
        lines = [line.strip() for line in "".join(data["text/html"]).splitlines() if line.strip()]
        return ['<div class="notebook-output">' + " ".join(lines) + "</div>"]
    return [f"```text title=\"output\"\n{''.join(data['text/plain']).rstrip()}\n```"]


def page(path):
    """A notebook's path -> Markdown"""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).rstrip()
        if cell["cell_type"] == "markdown":
            parts.append(source.replace("\n", "\n\n", 1) if source.startswith("#") else source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [part for output in cell["outputs"] for part in output_parts(output)]
    parts.insert(1, f"[Download the notebook]({path.name}) and run it with Jupyter.")
    return "\n\n".join(parts) + "\n"
