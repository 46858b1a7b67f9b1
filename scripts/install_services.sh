#!/bin/sh
# The servers that tests start on loopback: Redis and PostgreSQL, from Debian's packages.
# Installs what is missing where it may (root and apt-get); otherwise says what to install, and
# the tests that need it say so again when they skip.
set -eu

missing=""
command -v redis-server > /dev/null || missing="$missing redis-server"
command -v initdb > /dev/null || ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 \
  || missing="$missing postgresql"
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq
    # No service is started: tests run their own servers in temporary directories.
    # shellcheck disable=SC2086
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
else
    echo "Tests against real servers will be skipped; to run them too, install:$missing"
fi
