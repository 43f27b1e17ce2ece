#!/bin/sh
# Runs penstock with passwords that are read from files, so that none is in a compose file.
set -eu

if [ -n "${BROKER_PASSWORD_FILE:-}" ]; then
    PENSTOCK_BROKER="redis://:$(cat "$BROKER_PASSWORD_FILE")@${PENSTOCK_BROKER#redis://}"
    export PENSTOCK_BROKER
fi
# libpq reads it where the ledger's URL holds no password.
if [ -n "${PGPASSWORD_FILE:-}" ]; then
    PGPASSWORD=$(cat "$PGPASSWORD_FILE")
    export PGPASSWORD
fi
exec penstock "$@"
