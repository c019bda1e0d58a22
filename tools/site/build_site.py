#!/usr/bin/env python3
"""Builds the documentation site: build_site.py --build DIR --out FOLDER

Pages are the documents of the tree, the notebooks with their output, and the APIs of C++ and Python.
They are laid out in a folder of their own, with links turned to where things are there, and made into
HTML by MkDocs. The site needs no server and no network.
"""

import argparse
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cpp_headers
import cpp_pages
import notebook_page
import python_pages
from check_links import broken_links

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^)\s#]*)(#[^)\s]*)?\)")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".h": "cpp", ".cc": "cpp", ".c": "c", ".py": "python", ".md": "markdown"}
WITHOUT_MENU = "---\nhide: [navigation]\n---\n\n"
# Documents that are not in docs/, and where they go.
ELSEWHERE = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "models/cephalo-small/README.md": "model_card.md",
    "bench/results.md": "results.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}


class Site:
    """Pages on their way: `places` says where each file of the tree is on the site."""

    def __init__(self, folder):
        self.folder = folder
        self.places = {}
        self.sources = []  # files that documents link to and that are no documents

    def plan(self):
        for name, page in ELSEWHERE.items():
            if (ROOT / name).exists():
                self.places[name] = page
        for path in sorted(ROOT.glob("docs/*.md")):
            self.places.setdefault(f"docs/{path.name}", path.name)
        for path in sorted(ROOT.glob("docs/*.ipynb")):
            self.places[f"docs/{path.name}"] = f"{path.stem}.md"

    def write(self, page, text):
        path = self.folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def copy(self, name, to):
        path = self.folder / to
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, path)

    def place_of(self, name):
        """Where a file of the tree is on the site; what is not there yet is put there."""
        if name not in self.places:
            if pathlib.PurePath(name).suffix in (".svg", ".png"):
                self.places[name] = name.removeprefix("docs/")
                self.copy(name, self.places[name])
            else:
                self.places[name] = f"source/{name}.md"
                self.sources.append(name)
        return self.places[name]

    def turned(self, text, name):
        """Links of a document, by its folder in the tree -> those of its page on the site."""
        page = self.places[name]

        def turn(match):
            opening, target, anchor = match.group(1), match.group(2), match.group(3) or ""
            if not target or re.match(r"[a-z]+:", target):
                return match.group()
            file = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if not (ROOT / file).exists():
                raise FileNotFoundError(f"{name}: {target}")
            place, _, own = self.place_of(file).partition("#")
            there = posixpath.relpath(place, posixpath.dirname(page) or ".")
            return f"{opening}{there}{anchor or (own and '#' + own)})"

        parts = CODE.split(text)
        for index in range(0, len(parts), 2):
            parts[index] = LINK.sub(turn, parts[index])
        # A link around code was cut apart; its second half is behind the code.
        return re.sub(r"\[`[^`\n]+`\]\([^)]+\)", lambda m: LINK.sub(turn, m.group()), "".join(parts))


def source_page(name):
    """A file of the tree, or the list of a folder."""
    path = ROOT / name
    if path.is_dir():
        rows = "\n".join(f"- `{child.name}`" for child in sorted(path.iterdir()))
        return f"# {name}\n\n{rows}\n"
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {name}\n\n````{language}\n{path.read_text(encoding='utf-8').rstrip()}\n````\n"


def add_apis(site, build):
    found = cpp_headers.read_headers(ROOT, build / "doxygen")
    missing = cpp_headers.undocumented(found)
    if missing:
        raise ValueError("public names without a comment:\n" + "\n".join(missing))
    pages, places = cpp_pages.pages(found)
    for page, text in pages.items():
        site.write(f"cpp/{page}", text)
    site.places.update({header: f"cpp/{place}" for header, place in places.items()})
    package = ROOT / "python/cephalo"
    for page, text in python_pages.pages(package, build / "python/cephalo/_cephalo.pyi").items():
        site.write(f"python/{page}", text)


def add_documents(site):
    for name, page in list(site.places.items()):
        if name.endswith(".ipynb"):
            site.write(page, notebook_page.page(ROOT / name))
            site.copy(name, pathlib.PurePath(name).name)
        elif name.endswith(".md"):
            text = site.turned((ROOT / name).read_text(encoding="utf-8"), name)
            site.write(page, WITHOUT_MENU + text if page == "index.md" else text)
    for name in site.sources:
        site.write(site.places[name], source_page(name))


def api_menus():
    cpp = [{title: f"cpp/{room}.md"} for room, (title, _) in cpp_pages.ROOMS.items()]
    python = [{title: f"python/{section}.md"} for section, (title, _) in python_pages.SECTIONS.items()]
    return {"C++": cpp, "Python": [*python, {"cephalo.torch": "python/torch.md"}]}


def menu(entries, site):
    """The menu of mkdocs.yml, with the APIs, and without pages that this tree does not have."""
    made = []
    for entry in entries:
        (title, target), = entry.items()
        if isinstance(target, list):
            made.append({title: menu(target, site)})
        elif target in ("api/cpp", "api/python"):
            made.append({title: api_menus()["C++" if target == "api/cpp" else "Python"]})
        elif (site.folder / target).exists():
            made.append({title: target})
    return made


def run_mkdocs(site, out):
    config = yaml.safe_load((HERE / "mkdocs.yml").read_text())
    config |= {"docs_dir": str(site.folder), "site_dir": str(out), "nav": menu(config["nav"], site)}
    path = site.folder.parent / "mkdocs.yml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean",
                    "--config-file", path], check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=pathlib.Path, help="has the Python package's stub")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the site goes here")
    arguments = parser.parse_args()
    build, out = arguments.build.resolve(), arguments.out.resolve()
    pages = out.parent / f"{out.name}-pages"
    shutil.rmtree(pages, ignore_errors=True)
    site = Site(pages)
    try:
        site.plan()
        add_apis(site, build)
        add_documents(site)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"build_site.py: {error}")
    shutil.copytree(HERE / "assets", pages / "assets")
    run_mkdocs(site, out)
    (out / "404.html").unlink()  # only a server shows it
    broken = broken_links(out)
    if broken:
        sys.exit("build_site.py: links that lead nowhere:\n" + "\n".join(broken))
    print(f"{out}/index.html: {sum(1 for _ in out.rglob('*.html'))} pages")


if __name__ == "__main__":
    main()
