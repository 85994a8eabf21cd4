"""Makes the page of the package from README.md, with the address of every link and picture.

The build runs it (`[tool.hatch.metadata.hooks.custom]`). In a checkout and on the site the links
stay relative; outside the repository they would lead nowhere.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(!?\[[^]]*\])\((?![a-z]+:|#)([^)]+)\)")


class PackagePage(MetadataHookInterface):
    """Sets the description that a package index shows."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = with_addresses(readme, metadata["urls"]["Source"], f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_addresses(page: str, source: str, version: str) -> str:
    """The page with links to the files of this version."""

    def addressed(found: re.Match[str]) -> str:
        words, path = found.groups()
        shown = "raw" if words.startswith("!") else "blob"
        return f"{words}({source}/{shown}/{version}/{path})"

    return RELATIVE.sub(addressed, page)
