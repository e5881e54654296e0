# Prepares a pod for Flux, in the init container, whose image holds the view: Flux and all that it needs.
#
# Set before: hosts, host_prefix, broker_config, default_bind, default_port.
#
# shellcheck shell=sh disable=SC2154

set -eu

# A broker finds its rank by its host name. A pod that has none of its own has no file system of its own either
# where it is but a process of this machine; so nothing is written before this is known.
host=$(uname -n)
case $host in
    "$host_prefix"[0-9]*) ;;
    *)
        printf 'the host %s is none of %s: a pod needs a host name of its own, by which Flux ranks it\n' \
            "$host" "$hosts" >&2
        exit 1
        ;;
esac

PATH="/opt/view/bin:$PATH"
config=/mnt/flux/config

mkdir -p "$config/etc/flux/system/cron.d" "$config/etc/flux/config" "$config/etc/curve" \
    "$config/var/lib/flux" "$config/run/flux"
printf '%s\n' "$hosts" > "$config/etc/flux/system/hostlist"

# Pods that share the network of one machine are told by its runner where to listen.
if [ -n "${TRAINWRIGHT_FLUX_ADDRESS-}" ]; then
    default_bind="\"tcp://$TRAINWRIGHT_FLUX_ADDRESS:%p\""
fi
{
    printf '%s\n' "$broker_config"
    printf 'default_port = %s\n' "${TRAINWRIGHT_FLUX_PORT:-$default_port}"
    printf 'default_bind = %s\n' "$default_bind"
} > "$config/etc/flux/config/broker.toml"
cat "$config/etc/flux/config/broker.toml"

view=
for found in /opt/views/._view/*; do
    if [ -d "$found" ]; then
        view=$found
    fi
done
if [ -n "$view" ]; then
    mkdir -p /mnt/flux/view /mnt/flux/software
    cp -a "$view/." /mnt/flux/view/
    if [ -d /opt/software ]; then
        cp -a /opt/software/. /mnt/flux/software/
    fi
elif command -v flux > /dev/null; then
    printf 'no view of Flux here; the one on the PATH of the container node is used\n'
else
    printf 'there is no Flux in this image: neither a view in /opt/views/._view nor a program flux; ' >&2
    printf 'set FLUX_VIEW_IMAGE to an image with a view for the system of the container node\n' >&2
    exit 1
fi

# The container node may run as another user.
chmod -R a+rwX "$config"
touch /mnt/flux/flux-operator-done.txt
