"""Prepare a release: python .ci/release.py COMMAND ...

version 1.2.3                set the version of the package, the recipe and the changelog, for a commit
check v1.2.3                 fail unless tag, version, recipe and changelog agree
notes                        print the section of the changelog of the version
addresses REPOSITORY [DOCS]  write the addresses into pyproject.toml, and absolute links into README.md

The addresses are known where the repository is hosted, so the release workflow gives them; they are
written nowhere else.
"""

from __future__ import annotations

import re
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

TOP = Path(__file__).parents[1]
VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
RECIPE = re.compile(r'^  version: "(.*)"$', re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def current(top: Path) -> str:
    """Return the version of the package."""
    match = VERSION.search((top / "onnx_spatial" / "__init__.py").read_text("utf-8"))
    assert match is not None
    return match[1]


def set_version(top: Path, version: str) -> None:
    """Set the version, and give the section of unreleased changes its number and date."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        sys.exit(f"not a version: {version}")
    _edit(top / "onnx_spatial" / "__init__.py", VERSION, f'__version__ = "{version}"')
    _edit(top / "conda" / "recipe.yaml", RECIPE, f'  version: "{version}"')
    heading = f"## Unreleased\n\n## {version} - {datetime.now(UTC):%Y-%m-%d}"
    _edit(top / "CHANGELOG.md", re.compile(r"^## Unreleased$", re.MULTILINE), heading)


def check(top: Path, tag: str) -> None:
    """Exit with a message if the tag, the version, the recipe and the changelog do not agree."""
    version = current(top)
    recipe = RECIPE.search((top / "conda" / "recipe.yaml").read_text("utf-8"))
    if tag != f"v{version}":
        sys.exit(f"the tag is {tag}, the version of the package {version}")
    if recipe is None or recipe[1] != version:
        sys.exit(f"conda/recipe.yaml is not of version {version}")
    if not notes(top):
        sys.exit(f"CHANGELOG.md has no section ## {version}")


def notes(top: Path) -> str:
    """Return the section of the changelog of the version, without its heading."""
    text = (top / "CHANGELOG.md").read_text("utf-8")
    heading = rf"^## {re.escape(current(top))}( - \S+)?\n(.*?)(?=^## |\Z)"
    match = re.search(heading, text, re.MULTILINE | re.DOTALL)
    return "" if match is None else match[2].strip()


def addresses(top: Path, repository: str, documentation: str | None = None) -> None:
    """Write the addresses of a release into its metadata."""
    repository, tag = repository.rstrip("/"), f"v{current(top)}"
    pages = (documentation or f"{repository}/tree/{tag}/docs").rstrip("/")
    urls = {
        "Homepage": repository,
        "Documentation": pages,
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Source": repository,
    }
    pyproject = top / "pyproject.toml"
    if "urls" in tomllib.loads(pyproject.read_text("utf-8"))["project"]:
        sys.exit("pyproject.toml has addresses already")
    table = "[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    _edit(
        pyproject,
        re.compile(r"^\[project\.scripts\]$", re.MULTILINE),
        f"{table}\n[project.scripts]",
    )

    def absolute(match: re.Match[str]) -> str:
        image, text, path = match.groups()
        view = "raw" if image else "tree" if path.endswith("/") else "blob"
        return f"{image}[{text}]({repository}/{view}/{tag}/{path})"

    readme = top / "README.md"
    readme.write_text(LINK.sub(absolute, readme.read_text("utf-8")), "utf-8")


def _edit(path: Path, pattern: re.Pattern[str], text: str) -> None:
    edited, number = pattern.subn(lambda _: text, path.read_text("utf-8"), count=1)
    if not number:
        sys.exit(f"{path.name} has no line {pattern.pattern}")
    path.write_text(edited, "utf-8")


def main(words: list[str]) -> None:
    """Run a command."""
    match words:
        case ["version", version]:
            set_version(TOP, version)
        case ["check", tag]:
            check(TOP, tag)
        case ["notes"]:
            print(notes(TOP))
        case ["addresses", repository] | ["addresses", repository, ""]:
            addresses(TOP, repository)
        case ["addresses", repository, documentation]:
            addresses(TOP, repository, documentation)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
