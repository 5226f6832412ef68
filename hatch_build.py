"""The package's links: the repository and the site are where the release is made from.

They are read from REPOSITORY_URL and SITE_URL, as mkdocs.yml reads them. The workflows set both;
a build anywhere else leaves them out rather than guess.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAPER = "https://proceedings.mlr.press/v80/desa18a.html"


class Links(MetadataHookInterface):
    """Fills `project.urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the links that are known where the package is built."""
        metadata["urls"] = links(os.environ.get("REPOSITORY_URL"), os.environ.get("SITE_URL"))


def links(repository: str | None, site: str | None) -> dict[str, str]:
    """By the names that package indexes know."""
    found = {"Paper": PAPER}
    if repository:
        repository = repository.rstrip("/")
        found["Repository"] = repository
        found["Issues"] = f"{repository}/issues"
        found["Changelog"] = f"{repository}/blob/main/CHANGELOG.md"
    if site:
        found["Documentation"] = site
    return found
