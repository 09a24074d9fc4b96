"""PX4's simulation build, and the folder in which one flight of it runs.

A build is the result of PX4's target ``px4_sitl``: a folder with ``bin/px4`` and ``etc``. It is never written to: each
flight has a folder of its own with an ``etc`` of links, to which our airframe files are added.
"""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from companion.core.config import ConfigError

INSTALL_PAGE = "https://docs.px4.io/main/en/dev_setup/dev_env_linux_ubuntu.html"
AIRFRAMES = Path("init.d-posix") / "airframes"  # within etc
OWN_AIRFRAMES = Path(__file__).with_name("airframes")
SIH_MODEL = "sihsim_hex"


class Px4Build(NamedTuple):
    """Program and start-up files of a build."""

    program: Path
    etc: Path


def find_build(folder: Path | None = None) -> Px4Build:
    """The build in a folder, else in $PX4_BUILD, else that of the ``px4`` on the PATH; raises `ConfigError`."""
    if folder is not None:
        return _in_folder(folder, f"--px4-build {folder}")
    if named := os.environ.get("PX4_BUILD"):
        return _in_folder(Path(named), f"PX4_BUILD={named}")
    if on_path := shutil.which("px4"):
        return _in_folder(Path(on_path).resolve().parent.parent, on_path)
    raise ConfigError(f"no PX4 found: name its build with --px4-build or PX4_BUILD, or see {INSTALL_PAGE}")


def _in_folder(folder: Path, named: str) -> Px4Build:
    folder = folder.expanduser().resolve()
    build = Px4Build(folder / "bin" / "px4", folder / "etc")
    if not (build.program.is_file() and os.access(build.program, os.X_OK)):
        raise ConfigError(f"{named}: no program {build.program}: not a PX4 simulation build, see {INSTALL_PAGE}")
    if not (build.etc / AIRFRAMES).is_dir():
        raise ConfigError(f"{named}: no folder {build.etc / AIRFRAMES}: not a PX4 simulation build")
    return build


def external_model(airframe: str) -> str:
    """PX4_SIM_MODEL of our airframe file for an airframe of config/airframes; raises `ConfigError`."""
    if not list(OWN_AIRFRAMES.glob(f"*_none_{airframe}")):
        known = ", ".join(sorted(path.name.partition("_none_")[2] for path in OWN_AIRFRAMES.glob("*_none_*")))
        raise ConfigError(f"{OWN_AIRFRAMES}: no PX4 airframe for '{airframe}' (there are: {known})")
    return f"none_{airframe}"


def prepare_run(build: Px4Build, run: Path, model: str, parameters: dict[str, int | float]) -> Path:
    """Make the folder in which PX4 runs; returns its etc.

    run: created if it does not exist; the parameters of an earlier run in it are removed. parameters: set after the
    airframe's own, by PX4's names. Raises `ConfigError` when the build has no such model.
    """
    run.mkdir(parents=True, exist_ok=True)
    for old in ("parameters.bson", "parameters_backup.bson", "dataman"):
        (run / old).unlink(missing_ok=True)
    # Not "etc": PX4 makes a link of that name, in its own folder, to what it was given; a relative path would lead nowhere.
    etc = run.resolve() / "etc_flight"
    if etc.exists():
        shutil.rmtree(etc)
    _link_all(build.etc, etc)
    posix = AIRFRAMES.parent
    (etc / posix).unlink()
    _link_all(build.etc / posix, etc / posix)
    airframes = etc / AIRFRAMES
    airframes.unlink()
    _link_all(build.etc / AIRFRAMES, airframes)
    for own in OWN_AIRFRAMES.iterdir():
        (airframes / own.name).symlink_to(own)
    chosen = [path for path in airframes.iterdir() if path.name.partition("_")[2] == model]
    if not chosen:
        raise ConfigError(f"{build.etc / AIRFRAMES}: no airframe {model}: PX4 1.15 or later is needed")
    # A file in place of the link: the airframe itself, then the settings of the crew. PX4 numbers its systems by
    # instance; here it has one link and is system 1, as on an aircraft.
    original = chosen[0].resolve()
    chosen[0].unlink()
    settings = {"MAV_SYS_ID": 1} | parameters
    lines = [f". {original}", *(f"param set {name} {value}" for name, value in settings.items())]
    chosen[0].write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    return etc


def _link_all(source: Path, target: Path) -> None:
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).symlink_to(path)
