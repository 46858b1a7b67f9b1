#!/bin/sh
# What tests need beside Python: Redis, PostgreSQL and openssl from Debian's packages, and with
# --all also chromium from there, and MinIO, built by Go. Installs what is missing where it may (root and apt-get, or go);
# otherwise says what to install, and the tests that need it say so again when they skip.
set -eu
MINIO_VERSION=v0.0.0-20260212201848-7aac2a2c5b7c

missing=""
command -v redis-server > /dev/null || missing="$missing redis-server"
command -v openssl > /dev/null || missing="$missing openssl"
command -v initdb > /dev/null || ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 \
  || missing="$missing postgresql"
if [ "${1:-}" = "--all" ] && [ -z "${OTTLA_TEST_CHROMIUM:-}" ]; then
    command -v chromium > /dev/null || missing="$missing chromium"
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
