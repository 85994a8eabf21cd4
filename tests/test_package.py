"""What is published: the sdist has every committed file, the package's page works anywhere."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGET = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.processes
def test_the_sdist_has_every_committed_file():
    if not (ROOT / ".git").exists():
        pytest.skip("what is committed is known in a checkout only")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    committed = {name for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    packed = {one.distribution_path for one in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert committed - packed == set(), "add it to [tool.hatch.build.targets.sdist]"


def test_every_link_of_the_packages_page_has_an_address_and_leads_to_a_file():
    page = ProjectMetadata(str(ROOT), PluginManager()).core.readme
    links = TARGET.findall(page)
    assert len(links) > 30
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    ours = re.compile(rf"{PROJECT['urls']['Source']}/(blob|raw)/v{PROJECT['version']}/([^#]+)")
    found = [match.groups() for match in map(ours.fullmatch, links) if match]
    assert [path for _, path in found if not (ROOT / path).exists()] == []
    pictures = {path for shown, path in found if shown == "raw"}
    assert {path for _, path in found if path.endswith((".svg", ".png"))} == pictures != set()


def test_the_citation_says_what_the_package_says():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    assert [one for one in PROJECT["urls"].values() if citation["repository-code"] not in one] == []


SORTS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_a_version_of_the_changelog_has_each_sort_of_change_once():
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    assert versions
    for version in versions:
        sorts = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert set(sorts) <= set(SORTS)
        assert len(sorts) == len(set(sorts)), "put your line under the heading that is there"
