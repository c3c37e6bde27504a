#!/bin/sh
# Carries out the current plan of one deployment and ends: for sutler-plan.service and for cron.
# Settings come from the environment, or from the file that SUTLER_PLAN_SETTINGS names (see sutler-plan.env).
set -eu

settings=${SUTLER_PLAN_SETTINGS:-/etc/sutler/sutler-plan.env}
if [ -r "$settings" ]; then
    set -a
    . "$settings"
    set +a
fi

set -- "${SUTLER_PLAN_DEPLOYMENT:?name the deployment in $settings}" --once \
    --state "${STATE_DIRECTORY:-/var/lib/sutler-plan}/$SUTLER_PLAN_DEPLOYMENT.json"
if [ -n "${SUTLER_PLAN_PROBLEM:-}" ]; then set -- "$@" --problem "$SUTLER_PLAN_PROBLEM"; fi
if [ -n "${SUTLER_PLAN_HOOK:-}" ]; then set -- "$@" --hook "$SUTLER_PLAN_HOOK"; fi
# systemd hands the key over as a credential; under cron it is a file that only its user can read
if [ -n "${CREDENTIALS_DIRECTORY:-}" ]; then
    set -- "$@" --key-file "$CREDENTIALS_DIRECTORY/sutler-key"
elif [ -n "${SUTLER_PLAN_KEY_FILE:-}" ]; then
    set -- "$@" --key-file "$SUTLER_PLAN_KEY_FILE"
fi

exec "${SUTLER_PLAN_PYTHON:-/opt/sutler/bin/python}" "${SUTLER_PLAN_SCRIPT:-/opt/sutler/examples/provision.py}" "$@"
