#!/bin/sh
# Makes .venv ready: scripts/setup.sh EXTRAS [programs] installs gbun from this folder with the extras of pyproject.toml,
# e.g. "dev" or "plots,frames,peers". Does nothing when they are there and pyproject.toml has not changed since.
# With "programs" it also installs Java for Spark, where that is possible.
set -eu
cd "$(dirname "$0")/.."
extras=$1
programs=${2:-}

find_python() {
    for name in python3 python3.13 python3.12 python3.11 python3.10 python3.14 python; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "setup: no Python >= 3.10 found; install one and try again" >&2
    return 1
}

# Installs system packages where that is possible without asking: as root, with apt-get.
apt_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "setup: apt-get install $*"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# A copy of pyproject.toml tells what was installed. "dev" has all the other extras in it. The version is in src/gbun.
is_current() {
    .venv/bin/python -c 'import gbun, importlib.metadata as m, sys; sys.exit(gbun.__version__ != m.version("gbun"))' 2>/dev/null
}

is_ready() {
    for installed in "$extras" dev; do
        if cmp -s pyproject.toml ".venv/installed-$installed.toml"; then
            is_current && return
        fi
    done
    return 1
}

make_venv() {
    python=$(find_python)
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then # Debian and Ubuntu keep them in a package
        package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
        apt_install "$package" || {
            echo "setup: $python has no venv module; install it, on Debian and Ubuntu: apt-get install $package" >&2
            return 1
        }
    fi
    "$python" -m venv --clear .venv
}

# LightGBM is built with OpenMP and brings no copy of its library.
have_libgomp() {
    [ "$(uname)" != Linux ] || PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -q 'libgomp\.so\.1'
}

# Spark needs a Java runtime, 17 or newer.
have_java() {
    version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ]
}

if [ "$programs" = programs ] && ! have_java; then
    apt_install openjdk-17-jre-headless ||
        echo "setup: no Java >= 17 found, gbun.spark and its tests need it; on Debian and Ubuntu: apt-get install openjdk-17-jre-headless" >&2
fi
is_ready && exit
.venv/bin/python -c 'import pip' 2>/dev/null || make_venv
have_libgomp || apt_install libgomp1 || echo "setup: libgomp is missing, LightGBM will not load; install libgomp1" >&2
echo "setup: installing gbun[$extras] into .venv"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$extras]"
cp pyproject.toml ".venv/installed-$extras.toml"
