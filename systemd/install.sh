#!/bin/sh
# Installs the stack on an aircraft's computer: see docs/deploy.md, or `install.sh --help`.
#
# /opt/companion/releases/NAME   program, environment, units, pages of one version; /opt/companion/current: link to it
# /opt/companion/build           compiled solvers and kernels, each under the fingerprint of its sources
# /etc/companion                 the user's files: copied if they are absent, never overwritten, never removed
# /var/lib/companion             flights; made by systemd, never removed
set -eu
umask 022 # the units run as user companion: it must be able to read what root installs

SOURCE=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
ROOT=
DRY_RUN=no
ACTION=install
WITH_VENV=yes
FORCE=no
PYTHON_GIVEN=${PYTHON:+yes} # sudo drops it
PYTHON=${PYTHON:-python3}
VEHICLE=
USER_NAME=companion
CORES_NEEDED=4 # the units' CPUAffinity= names cores 2 and 3
SAY_VERSION='import sys; print("%d.%d" % sys.version_info[:2])'
PROGRAM='companion acados_gen calibration sitl pyproject.toml requirements.lock'
UNITS='companion.target companion-recorder.service companion-fcu.service companion-estimator.service
companion-controller.service companion-tracker.service companion-camera.service companion-payload.service
companion-mission.service resume-companion.service'

usage() {
    cat <<'END'
usage: systemd/install.sh [options]          (as root; on the computer of the aircraft)

  --vehicle FILE   compile for this vehicle file; default: the one that /etc/companion/companion.env names
  --dry-run        print what would be done, change nothing
  --root DIR       install below DIR: no user, no systemctl, nothing outside DIR (for images and tests)
  --no-venv        without Python environment and compiled kernels (both take minutes and the network)
  --uninstall      remove everything except the user's files, the flights and the user
  --rollback       back to the version before this one
  --force          also to a version that cannot read the files of /etc/companion/companion.env; compiles nothing
  --help
The interpreter is $PYTHON, else that of the installed environment, else python3; it must be 3.11 or later.
END
}

fail() {
    echo "install.sh: $*" >&2
    exit 2
}

say() { echo "$*"; }

# Runs a command that changes something; --dry-run only prints it.
run() {
    if [ "$DRY_RUN" = yes ]; then
        say "would run: $*"
    else
        "$@"
    fi
}

# Runs a command that changes the machine and not only files; left out with --root.
on_machine() {
    if [ -n "$ROOT" ]; then
        say "left out below --root: $*"
    else
        run "$@"
    fi
}

put() { # put MODE FROM TO: a file of this package, replaced by every installation
    if cmp -s "$2" "$3"; then
        return
    fi
    say "install $3"
    run install -D -m "$1" "$2" "$3"
}

# Before a name appears that says that all is there, and before the end: a battery that is unplugged costs the content of
# files up to 30 s old, and leaves their names.
settle() {
    for folder in "$OPT" "$ETC"; do
        if [ -d "$folder" ]; then run sync -f "$folder"; fi
    done
}

keep_or_put() { # keep_or_put FROM TO: a file of the user's; an empty one was cut by a loss of power
    if [ ! -s "$2" ]; then
        say "install $2"
        run install -D -m 644 "$1" "$2"
    elif ! cmp -s "$1" "$2"; then
        say "kept    $2 (yours; this version's is $1)"
    fi
}

while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) DRY_RUN=yes ;;
    --uninstall) ACTION=uninstall ;;
    --rollback) ACTION=rollback ;;
    --no-venv) WITH_VENV=no ;;
    --force) FORCE=yes ;;
    --root | --vehicle)
        [ $# -ge 2 ] || fail "$1 needs a value"
        if [ "$1" = --root ]; then ROOT=$2; else VEHICLE=$2; fi
        shift
        ;;
    -h | --help) usage && exit 0 ;;
    *) fail "unknown option $1 (see --help)" ;;
    esac
    shift
done

if [ -n "$ROOT" ]; then
    case $ROOT in
    /*) ;;
    *) fail "--root $ROOT: must be an absolute path" ;;
    esac
    ROOT=${ROOT%/}
    [ -n "$ROOT" ] || fail "--root /: leave the option out to install on this machine"
    [ -d "$ROOT" ] || fail "--root $ROOT: no such folder"
fi
OPT=$ROOT/opt/companion
ETC=$ROOT/etc/companion
UNIT_DIR=$ROOT/etc/systemd/system
RULES=$ROOT/etc/udev/rules.d/70-companion.rules
COMMAND=$ROOT/usr/local/bin/companion

check_machine() {
    if [ -n "$ROOT" ]; then return; fi
    if [ "$DRY_RUN" = no ] && [ "$(id -u)" -ne 0 ]; then
        fail "needs root (sudo), or --dry-run or --root DIR"
    fi
    for program in systemctl udevadm useradd; do
        command -v "$program" >/dev/null || fail "$program is missing: the stack needs a system with systemd and udev"
    done
    if [ "$DRY_RUN" = no ] && systemctl --quiet is-active companion.target; then
        fail "companion.target is running; stop it first, on the ground: systemctl stop companion.target"
    fi
}

check_python() {
    if [ "$WITH_VENV" = no ]; then return; fi
    command -v "$PYTHON" >/dev/null || fail "$PYTHON: no such program; set PYTHON=…"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$PYTHON is older than Python 3.11; set PYTHON=…"
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || fail "$PYTHON cannot make environments: install python3-venv"
    command -v cc >/dev/null || command -v gcc >/dev/null || fail "a C compiler is missing: install gcc"
}

release_name() {
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$SOURCE/pyproject.toml")
    # A changed checkout, or a copy without git, is identified by its contents.
    # shellcheck disable=SC2086 # a list of words
    sum=$(cd "$SOURCE" && find $PROGRAM docs systemd -type f ! -name '*.pyc' -exec sha256sum {} + |
        LC_ALL=C sort -k 2 | sha256sum | cut -c 1-10)
    echo "$version-$sum"
}

source_commit() { # the commit of the checkout, with "modified" behind it; empty without git
    commit=$(git -c safe.directory="$SOURCE" -C "$SOURCE" rev-parse HEAD 2>/dev/null || true)
    if [ -n "$commit" ] && [ -n "$(git -c safe.directory="$SOURCE" -C "$SOURCE" status --porcelain --untracked-files=no)" ]; then
        commit="$commit modified"
    fi
    echo "$commit"
}

make_user() {
    if [ -n "$ROOT" ]; then
        say "left out below --root: user $USER_NAME"
    elif ! id "$USER_NAME" >/dev/null 2>&1; then
        run useradd --system --user-group --no-create-home --home-dir /var/lib/companion \
            --shell /usr/sbin/nologin "$USER_NAME"
    fi
}

point_at() { # point_at LINK TARGET: atomically, so that the link always exists
    if [ "$(readlink "$1" 2>/dev/null || true)" = "$2" ]; then return; fi
    say "point   $1 -> $2"
    run ln -sfn "$2" "$1.next"
    run mv -T "$1.next" "$1"
}

# environment_problem RELEASE [VERSION]: why its Python environment cannot be used, nothing when it can. An upgrade of the
# system can take the interpreter away, or put another one behind its name that does not find the packages.
environment_problem() {
    if [ ! -x "$1/venv/bin/python" ] || [ ! -x "$1/venv/bin/companion" ]; then
        echo "its interpreter or its command is missing"
    elif ! found=$("$1/venv/bin/python" -IBc "import companion, numpy, zmq; $SAY_VERSION" 2>/dev/null); then
        echo "its packages cannot be imported"
    elif [ "$found" != "${2:-$found}" ]; then
        echo "it is of Python $found, and $PYTHON is $2"
    fi
}

fill_environment() { # fill_environment FOLDER SOURCE: a new environment with all packages; its status says whether it is whole
    run "$PYTHON" -m venv --clear "$1" &&
        run "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
            --only-binary :all: -r "$2/requirements.lock" &&
        run "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
            --no-build-isolation -e "$2" &&
        # The units may not write it: each start would compile all modules. A source that was edited is still noticed.
        run "$1/bin/python" -m compileall -q --invalidation-mode checked-hash "$2"
}

# make_environment RELEASE: in a new folder; the environment that is there is replaced only by one that is whole. An
# environment has its own path in its commands and cannot be moved: "venv" is a link to it.
make_environment() {
    fresh=venv-1
    if [ "$(readlink "$1/venv" 2>/dev/null || true)" = "$fresh" ]; then fresh=venv-2; fi
    fill_environment "$1/$fresh" "$1/source" ||
        fail "$1/$fresh: no new Python environment, for the reason above (no network?); one that was there is unchanged"
    if [ -d "$1/venv" ] && [ ! -L "$1/venv" ]; then
        run mv "$1/venv" "$1/venv-0" # a folder, as earlier versions installed it
    fi
    settle
    point_at "$1/venv" "$fresh"
    for former in "$1"/venv-[0-9]; do
        if [ "$former" != "$1/$fresh" ] && [ -e "$former" ]; then run rm -rf "$former"; fi
    done
}

release_problem() { # release_problem RELEASE: why it must be installed, or get another environment; nothing when it is usable
    if [ ! -e "$1/.complete" ]; then
        echo "it is not installed"
    elif [ "$WITH_VENV" = yes ]; then
        # Another Python is a reason only where one was named: without PYTHON an environment that works stays.
        environment_problem "$1" "${PYTHON_GIVEN:+$("$PYTHON" -c "$SAY_VERSION")}"
    fi
}

make_release() { # make_release PROBLEM: of the release, see release_problem
    release=$OPT/releases/$RELEASE
    if [ -e "$release/.complete" ] && [ -n "$1" ]; then
        say "rebuild $release/venv: $1"
        make_environment "$release"
    elif [ -e "$release/.complete" ]; then
        say "have    $release"
    else
        say "install $release"
        run rm -rf "$release"
        run mkdir -p "$release/source"
        run cp -R "$SOURCE/docs" "$SOURCE/systemd" "$release/"
        for part in $PROGRAM; do
            run cp -R "$SOURCE/$part" "$release/source/"
        done
        run find "$release" -name __pycache__ -prune -exec rm -rf {} +
        # The copy has no repository; logs and `companion --version` name the commit from this file.
        run sh -c "echo '$(source_commit)' > '$release/source/companion/core/commit.txt'"
        if [ "$WITH_VENV" = yes ]; then
            make_environment "$release"
        fi
        settle
        run touch "$release/.complete"
    fi
}

make_readable() { # make_readable FOLDER: a release, with the compiled files; a checkout made under another umask is closed
    for folder in "$OPT" "$OPT/releases"; do
        run chmod a+rX "$folder"
    done
    run chmod -R a+rX "$1"
    if [ -d "$OPT/build" ]; then
        run chmod -R a+rX "$OPT/build"
    fi
}

value_of() { # value_of NAME: in the environment file as systemd and the command `companion` read it: the last line counts
    env_file=$ETC/companion.env
    [ -e "$env_file" ] || env_file=$SOURCE/systemd/companion.env
    sed -n "s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*//p" "$env_file" | tail -n 1 |
        sed -e 's/[[:space:]]*$//' -e 's/^"\(.*\)"$/\1/' -e "s/^'\\(.*\\)'\$/\\1/"
}

# prepare_start RELEASE: it can read the files that the units fly, and has its kernels for them. Before it becomes the current
# version, because it cannot start without: each version refuses keys that it does not know and asks for those that it needs.
prepare_start() {
    if [ "$WITH_VENV" = no ]; then
        say "left out by --no-venv: Python environment, compiled kernels"
        return
    elif [ "$FORCE" = yes ]; then
        say "left out by --force: check of the files, compiled kernels (companion generate)"
        return
    fi
    vehicle=${VEHICLE:-$ROOT$(value_of COMPANION_VEHICLE)}
    mission=$ROOT$(value_of COMPANION_MISSION)
    if [ "$DRY_RUN" = no ] && [ ! -r "$vehicle" ]; then
        fail "$vehicle: no such vehicle file (COMPANION_VEHICLE in $ETC/companion.env, or --vehicle FILE)"
    elif [ "$DRY_RUN" = no ] && [ ! -f "$mission" ]; then
        fail "$mission: no such mission file (COMPANION_MISSION in $ETC/companion.env)"
    fi
    # Prints the safety table, for which it reads vehicle, mission and marker file as a start does.
    if [ "$DRY_RUN" = yes ]; then
        say "would run: $1/venv/bin/companion safety --vehicle $vehicle --mission $mission"
    elif ! "$1/venv/bin/companion" safety --vehicle "$vehicle" --mission "$mission" >/dev/null; then
        fail "$1 cannot read these files, for the reason above; the current version stays. Edit them, or add --force"
    fi
    say "compile for $vehicle"
    run env COMPANION_BUILD_DIR="$OPT/build" "$1/venv/bin/companion" generate --vehicle "$vehicle"
}

make_configuration() {
    keep_or_put "$SOURCE/systemd/companion.env" "$ETC/companion.env"
    for folder in vehicles missions markers cameras batteries; do
        for file in "$SOURCE/config/$folder"/*.toml; do
            if [ "$folder" = missions ] && grep -q '^start = "auto"' "$file"; then
                say "left out $file: start = \"auto\" takes off by itself, for simulators"
                continue
            fi
            keep_or_put "$file" "$ETC/$folder/${file##*/}"
        done
    done
}

make_units() { # make_units FOLDER: of the version that the units belong to
    for unit in $UNITS; do
        if [ -e "$1/units/$unit" ]; then
            put 644 "$1/units/$unit" "$UNIT_DIR/$unit"
        else # not yet in an earlier version
            run rm -f "$UNIT_DIR/$unit"
        fi
    done
    put 644 "$1/units/companion-.service.d/10-common.conf" "$UNIT_DIR/companion-.service.d/10-common.conf"
    few_cores=$UNIT_DIR/companion-.service.d/20-few-cores.conf
    cores=$(getconf _NPROCESSORS_ONLN)
    if [ -z "$ROOT" ] && [ "$cores" -lt "$CORES_NEEDED" ]; then
        say "install $few_cores ($cores cores: the control loop shares its cores)"
        if [ "$DRY_RUN" = no ]; then
            printf '[Service]\nCPUAffinity=\n' >"$few_cores"
        fi
    elif [ -e "$few_cores" ]; then
        run rm -f "$few_cores"
    fi
    put 644 "$1/70-companion.rules" "$RULES"
    put 755 "$1/companion" "$COMMAND"
    on_machine systemctl daemon-reload
    on_machine udevadm control --reload
    on_machine udevadm trigger --subsystem-match=tty --subsystem-match=video4linux --subsystem-match=usb
    on_machine systemctl enable companion.target
}

install_all() {
    check_machine
    if [ -n "$PYTHON_GIVEN" ]; then check_python; fi
    RELEASE=$(release_name)
    problem=$(release_problem "$OPT/releases/$RELEASE")
    if [ -n "$problem" ]; then check_python; fi
    make_user
    make_configuration
    make_release "$problem"
    prepare_start "$OPT/releases/$RELEASE"
    make_readable "$OPT/releases/$RELEASE"
    settle
    current=$(readlink "$OPT/current" 2>/dev/null || true)
    if [ -n "$current" ] && [ "$current" != "releases/$RELEASE" ]; then
        point_at "$OPT/previous" "$current"
    fi
    point_at "$OPT/current" "releases/$RELEASE"
    make_units "$SOURCE/systemd"
    settle
    say "done. Check $ETC/companion.env and the vehicle file that it names, then: systemctl start companion.target"
}

rollback() {
    check_machine
    previous=$(readlink "$OPT/previous" 2>/dev/null || true)
    [ -n "$previous" ] || fail "$OPT/previous: there is no earlier version"
    [ -e "$OPT/$previous/.complete" ] || fail "$OPT/$previous: not a complete version"
    # A working environment stays, whichever Python it is of. Without its folder the version was installed by --no-venv.
    if [ "$WITH_VENV" = yes ] && [ -e "$OPT/$previous/venv" ]; then
        problem=$(environment_problem "$OPT/$previous")
        if [ -n "$problem" ]; then
            check_python
            say "rebuild $OPT/$previous/venv: $problem"
            make_environment "$OPT/$previous"
        fi
        prepare_start "$OPT/$previous"
    fi
    make_readable "$OPT/$previous"
    settle
    current=$(readlink "$OPT/current")
    point_at "$OPT/current" "$previous"
    point_at "$OPT/previous" "$current"
    make_units "$OPT/$previous/systemd"
    settle
    say "done. The files in $ETC are unchanged. Start with: systemctl start companion.target"
}

uninstall() {
    check_machine
    if [ -e "$UNIT_DIR/companion.target" ]; then
        on_machine systemctl disable companion.target
    fi
    for unit in $UNITS; do
        run rm -f "$UNIT_DIR/$unit"
    done
    run rm -rf "$UNIT_DIR/companion-.service.d"
    run rm -f "$RULES" "$COMMAND"
    run rm -rf "$OPT"
    on_machine systemctl daemon-reload
    on_machine udevadm control --reload
    say "done. Unchanged: $ETC, $ROOT/var/lib/companion, the user $USER_NAME"
}

case $ACTION in
install) install_all ;;
uninstall) uninstall ;;
rollback) rollback ;;
esac
