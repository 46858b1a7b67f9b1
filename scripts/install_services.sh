#!/bin/sh
# What tests need beside Python: Redis, PostgreSQL and openssl from Debian's packages, and with
# --all also chromium and Node.js from there, MinIO, built by Go, and axe-core for
# scripts/console_axe.py. Installs what is missing where it may (root and apt-get, or go);
# otherwise says what to install, and the tests that need it say so again when they skip.
set -eu
AXE_VERSION=4.14.0
AXE_SHA512=f564d9c448ec67b6f5dd31fc24f99b576cfc0876e5f34ff6866dd73c41b826035d40b2bcd480515e64b11df3003a44aa41e4714ffd1dc0d0f3d863a6df3ce971
MINIO_VERSION=v0.0.0-20260212201848-7aac2a2c5b7c

missing=""
command -v redis-server > /dev/null || missing="$missing redis-server"
command -v openssl > /dev/null || missing="$missing openssl"
command -v initdb > /dev/null || ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 \
  || missing="$missing postgresql"
if [ "${1:-}" = "--all" ] && [ -z "${OTTLA_TEST_CHROMIUM:-}" ]; then
    command -v chromium > /dev/null || missing="$missing chromium"
fi
if [ "${1:-}" = "--all" ]; then
    command -v npm > /dev/null || missing="$missing nodejs npm"
fi
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
        apt-get update -qq
        # No service is started: tests run their own servers in temporary directories.
        # shellcheck disable=SC2086
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends $missing
    else
        echo "Tests that need these will be skipped; to run them too, install:$missing"
    fi
fi

[ "${1:-}" = "--all" ] || exit 0
# Not a part of the tests: scripts/console_axe.py looks at the console's pages with it.
axe="$HOME/.cache/ottla-axe"
if [ ! -f "$axe/axe.min.js" ] && command -v npm > /dev/null; then
    mkdir -p "$axe"
    (cd "$axe" && npm pack --silent "axe-core@$AXE_VERSION" > /dev/null 2>&1 \
        && echo "$AXE_SHA512  axe-core-$AXE_VERSION.tgz" | sha512sum -c --status \
        && tar xzf "axe-core-$AXE_VERSION.tgz" --strip-components=1 package/axe.min.js package/LICENSE) \
      || echo "axe-core could not be fetched; scripts/console_axe.py needs it"
fi
bin="$HOME/.cache/ottla-s3/bin"
if ! command -v minio > /dev/null && [ ! -x "$bin/minio" ]; then
    if command -v go > /dev/null; then
        echo "building MinIO, which takes some minutes the first time"
        GOBIN="$bin" go install "github.com/minio/minio@$MINIO_VERSION" > /dev/null 2>&1 \
          || echo "MinIO could not be built; tests with it will be skipped"
    else
        echo "Tests with MinIO will be skipped; to run them too, install minio or go"
    fi
fi
