"""The project that flies a campaign: its sources, and the configuration files that are read where a flight is flown.

A flight carries the tables of its own files. PX4's defaults are read where it is flown; on another machine all configuration files
are compared, so that none that a later version reads there is forgotten.
"""

import hashlib

import msgspec

from companion.core import provenance
from companion.core.config_files import SUFFIX, ConfigKind, config_folder, folder_of
from companion.core.errors import UserError
from sitl.autopilot.parameters import defaults_file


class OtherVersion(UserError):
    """The project here is not the one that drew the flights."""


class Project(msgspec.Struct, frozen=True):
    """Sources and configuration files. configuration: SHA-256 by "folder/name"."""

    source_hash: str
    configuration: dict[str, str]


def project_here(everything: bool = False) -> Project:
    """The project as it was when this process began, and its configuration files now.

    everything: all of them but the campaign files, which are read only where a campaign is begun; else those that flights read.
    """
    if not everything:
        file = defaults_file()
        names = [f"{file.parent.name}/{file.name}"]
    else:
        above = [folder for folder in (config_folder(), config_folder({})) if folder.is_dir()]  # own, and the project's
        kinds = {folder.name for root in above for folder in root.iterdir() if folder.is_dir()} - {ConfigKind.CAMPAIGN}
        files = [(kind, path) for kind in sorted(kinds) for path in sorted(folder_of(kind).rglob(f"*{SUFFIX}"))]
        names = [f"{kind}/{path.relative_to(folder_of(kind)).as_posix()}" for kind, path in files]
    found = {name: digest for name in names if (digest := _digest(name)) is not None}
    return Project(provenance.software().source_hash, found)


def check_project(project: Project) -> None:
    """Raise `OtherVersion` unless sources and configuration here are those of this project."""
    here = provenance.software()
    if here.source_hash != project.source_hash:
        raise OtherVersion(
            f"another version of the project: {provenance.version_line()}, sources {here.source_hash[:12]}"
        )
    _check_configuration(project)


def check_unchanged(project: Project) -> None:
    """Raise `OtherVersion` when the files on the disk are no longer those that this process has imported, or of this project."""
    if provenance.source_hash() != provenance.software().source_hash:
        raise OtherVersion("the project was changed while its flights were flown")
    _check_configuration(project)


def _check_configuration(project: Project) -> None:
    """A file that is not there is no difference: a flight that needs it says so."""
    for name, digest in project.configuration.items():
        if _digest(name) not in (digest, None):
            kind, _, rest = name.partition("/")
            raise OtherVersion(f"{folder_of(kind) / rest}: another configuration than that of the campaign")


def _digest(name: str) -> str | None:
    """SHA-256 of a configuration file, None where there is none that can be read."""
    kind, _, rest = name.partition("/")
    try:
        return hashlib.sha256((folder_of(kind) / rest).read_bytes()).hexdigest()
    except OSError:
        return None
