"""Pages of the Python API, from the type stubs of the extension and the sources of the package."""

import ast
import re

from prose import markdown

# Where each public name is shown.
SECTIONS = {
    "attention": ("Attention and masks", """attend AttendResult attend_backward AttendGradients
        attend_tangent AttendTangents attend_second AttendSecond plan Plan
        weights pooled_weights PooledWeights row_sums ROW_SUMS KVCache
        Mask positions causal window unlimited keep drop bias lengths documents alibi alibi_slopes
        gradcheck GradcheckReport"""),
    "layers": ("Layers and the ladder", """simple_attention SimpleAttention trace_simple_attention SelfAttention
        CausalAttention CausalSelfAttention HeadWrapper MultiHeadAttention EasyMultiHeadAttention
        MultiHeadSelfAttention FastMultiHeadAttention pipeline Pipeline Rotary load from_torch to_torch_state_dict
        Gradients SavedPass PassHeads LayerGradients Trace Step SplitPicture exercise Exercise check Verdict"""),
    "text": ("Text", """Bpe BpeTrainer WordTokenizer split_words write_token_file TokenFile Windows WindowBatch
        split_tokens sentence_ends"""),
    "models": ("Models", """Gpt GptCache GptGradients TrainPass Generated gpt_preset_names builtin_model
        builtin_tokenizer has_builtin_model sample_token Embedding embed_tokens LayerNorm Mlp"""),
    "training": ("Training", """Trainer Schedule learning_rate_at RunFolder TrainingHistory StepRecord
        ValidationRecord checkpoint_summary choose_recipe Recipe RowRecipe recipe_rows TrainRows RowSource
        recipe_vocab_size cross_entropy adamw_step AdamWState sgd_step SgdState
        clip_gradient_norm"""),
    "look": ("Looking inside", """look TextLook HeadLook TokenLook TokenLink Look Recording LookReport LookProbe
        probe_for_look probe_heads probe_ids longest_probe ProbeScores head_metrics HeadMetrics Score head_labels
        report_heads HeadReport strongest_links first_token_share head_divergence jensen_shannon value_weighted
        draw_heads draw_head Picture"""),
    "other": ("Arrays, threads, random numbers", "Array TorchGenerator threads isa"),
}
WIDTH = 96
SAYS_NOTHING = ("Any", "Any | None", "object", "object | None", "None")


def public_names(package):
    """What __init__.py imports without an underscore."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    found = [alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom)
             for alias in node.names]
    return [name for name in found if not name.startswith("_")]


def definitions(package, stub):
    """name -> its definitions; several of one name are overloads."""
    found = {}
    for path in [stub, *sorted(package.glob("_*.py"))]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in names_of(node):
                found.setdefault(name, []).append(node)
    return found


def names_of(node):
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [t.id for t in targets if isinstance(t, ast.Name)]


def signature(node, name=None):
    """The call, with what its annotations tell, broken where it is long."""
    parts = [argument(part) for part in split_arguments(ast.unparse(node.args)) if part not in ("self", "/")]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    returns = "" if returns[4:] in SAYS_NOTHING else returns
    line = f"{name or node.name}({', '.join(parts)}){returns}"
    if len(line) <= WIDTH:
        return line
    return f"{name or node.name}(\n    " + ",\n    ".join(filled(parts)) + f"\n){returns}"


def argument(text):
    """"x: int | None=None" -> "x: int | None = None"; annotations that say nothing are left out"""
    match = re.match(r"(\**\w+): (.*?)(?:=(.*))?$", text)
    if match is None:
        return text
    name, kind, default = match.groups()
    if kind in SAYS_NOTHING:
        return name if default is None else f"{name}={default}"
    return f"{name}: {kind}" + ("" if default is None else f" = {default}")


def split_arguments(text):
    """Commas outside of brackets part arguments."""
    parts, depth, begin = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[begin:index].strip())
            begin = index + 1
    return [part for part in [*parts, text[begin:].strip()] if part]


def filled(parts):
    """Arguments into lines, as many as fit."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 2 <= WIDTH - 8:
            lines[-1] += ", " + part
        else:
            lines.append(part)
    return lines


def doc(node, links):
    return markdown((ast.get_docstring(node) or "").splitlines(), links)


def function_parts(nodes, links, name=None):
    parts = ["```python\n" + "\n".join(signature(node, name) for node in nodes) + "\n```"]
    return parts + [text for text in dict.fromkeys(doc(node, links) for node in nodes) if text]


def is_property(node):
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def is_setter(node):
    return any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)


def shown_method(node):
    return isinstance(node, ast.FunctionDef) and not is_setter(node) and (
        not node.name.startswith("_") or node.name in ("__init__", "__call__"))


def class_parts(node, links):
    """A class -> its docstring, how it is made, its methods, its attributes."""
    parts = [doc(node, links)]
    methods = {}
    for member in node.body:
        if shown_method(member) and not is_property(member):
            methods.setdefault(member.name, []).append(member)
    for name, members in methods.items():
        if name == "__init__":
            parts += function_parts(members, links, node.name)
        elif name == "__call__":
            parts += ["**call**", *function_parts(members, links, lower(node.name))]
        else:
            parts += [f"#### `{node.name}.{name}` {{#{node.name}.{name}}}", *function_parts(members, links)]
    return [*parts, attributes(node, links)]


def lower(name):
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower().rsplit("_", 1)[-1]


def attributes(node, links):
    rows = []
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and is_property(member) and not member.name.startswith("_"):
            kind = ast.unparse(member.returns) if member.returns is not None else ""
            text = " ".join((ast.get_docstring(member) or "").split())
            rows.append(row(member.name, kind, markdown([text], links)))
        elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            rows.append(row(member.target.id, ast.unparse(member.annotation), ""))
    if not rows:
        return ""
    return "\n".join(["| attribute | type | |", "|---|---|---|", *rows])


def row(name, kind, text):
    kind = "" if kind == "Any" else f"`{kind}`".replace("|", "\\|")
    return f"| `{name}` | {kind} | {text} |"


def entry(name, nodes, links):
    parts = [f"### `{name}` {{#{name}}}"]
    first = nodes[0]
    if isinstance(first, ast.ClassDef):
        parts += class_parts(first, links)
    elif isinstance(first, ast.FunctionDef):
        parts += function_parts(nodes, links)
    else:
        parts.append("```python\n" + ast.unparse(first) + "\n```")
    return "\n\n".join(part for part in parts if part)


def torch_page(package, links):
    trees = [ast.parse((package / "torch" / name).read_text(encoding="utf-8"))
             for name in ("__init__.py", "sdpa.py", "module.py", "attend.py", "_masks.py", "_weights.py", "hf.py")]
    public = next(ast.literal_eval(node.value) for node in trees[0].body if isinstance(node, ast.Assign))
    parts = ["# cephalo.torch", doc(trees[0], links)]
    for node in (node for tree in trees for node in tree.body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in public:
            parts.append(entry(node.name, [node], links))
    return "\n\n".join(parts) + "\n"


def sections(package):
    """SECTIONS as lists of names; what is new in the package and has no place yet comes last."""
    placed = {section: names.split() for section, (_, names) in SECTIONS.items()}
    known = {name for names in placed.values() for name in names}
    public = public_names(package)
    if known - set(public):
        raise ValueError(f"python_pages.py: the package has no {', '.join(sorted(known - set(public)))}")
    placed["other"] += [name for name in public if name not in known]
    return placed


def pages(package, stub):
    """-> {section.md: Markdown}"""
    found, placed = definitions(package, stub), sections(package)
    links = {name: f"{section}.md#{name}" for section, names in placed.items()
             for name in names if name[0].isupper()}
    made = {}
    for section, names in placed.items():
        entries = [entry(name, found[name], links) for name in names]
        made[f"{section}.md"] = "\n\n".join([f"# {SECTIONS[section][0]}", *entries]) + "\n"
    made["torch.md"] = torch_page(package, links)
    return made
