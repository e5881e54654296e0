# Runs a program under Flux, in the container node of every pod. Its words are the arguments of this script.
#
# The first pod leads: its broker starts the program on all nodes, and the pod ends with the program's exit
# code. The others follow: their brokers wait for the first one's, and end with it. Without arguments the
# first one runs a broker and nothing else, for whoever wants to log in.
#
# Set before: hosts, lead, run_flags, resources.
#
# shellcheck shell=sh disable=SC2154

set -u

config=/mnt/flux/config
view=/mnt/flux/view
socket=local://$config/run/flux/local
outcome=/mnt/flux/exit-code  # of a program that failed, in the pods that follow
retry_seconds=15
retries=120

say() {
    printf 'flux on %s: %s\n' "$host" "$1" >&2
}

fail() {
    say "$2"
    exit "$1"
}

main() {
    host=$(uname -n)
    user=$(id -u)
    stopped=
    broker=
    # The first process of a container gets a signal only where it says what to do.
    trap 'stopped=yes; interrupted=yes; [ -z "$broker" ] || kill -TERM "$broker" 2> /dev/null' TERM INT
    find_flux
    write_helpers
    install_certificate
    describe_resources
    mkdir -p /tmp/fluxout
    rm -f "$outcome"
    if [ "$host" != "$lead" ]; then
        follow
    elif [ $# -eq 0 ]; then
        say "there is no command; log in, source /mnt/flux/flux-view.sh and run flux proxy \$fluxsocket"
        run_broker -o,-Sbroker.rc2_none=1
    else
        run_command "$@"
    fi
    code=$?
    touch /mnt/flux/flux-operator-complete.txt
    exit "$code"
}

# What the image brings goes before what the view brings.
find_flux() {
    PATH="$PATH:$view/bin"
    export PATH
    copy_software
    packages=
    for found in "$view"/lib/python3.*; do
        python=$view/bin/${found##*/}
        if [ -d "$found" ] && [ -e "$python" ]; then
            packages=$found/site-packages
            ln -sf "$python" "$view/bin/python3" 2> /dev/null || :
            ln -sf "$python" "$view/bin/python" 2> /dev/null || :
        fi
    done
    if [ -n "$packages" ]; then
        PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$packages
        export PYTHONPATH
    fi
    if [ -d "$view/etc/flux/rc1.d" ]; then
        FLUX_RC_EXTRA=$view/etc/flux/rc1.d
        export FLUX_RC_EXTRA
    fi
    command -v flux > /dev/null ||
        fail 127 "there is no program flux; set FLUX_VIEW_IMAGE to a view for the system of this image"
}

# Programs of the view look for what they need at this path. Each entry by itself: the directory is not ours to
# change. Once: what is there may be read-only.
copy_software() {
    if [ -e /opt/software/.flux-is-copied ]; then
        return
    fi
    for entry in /mnt/flux/software/*; do
        if [ -e "$entry" ]; then
            cp -a "$entry" /opt/software/ || fail 1 "cannot copy $entry to /opt/software"
        fi
    done
    touch /opt/software/.flux-is-copied
}

# For people who log in.
write_helpers() {
    cat > /mnt/flux/load-fluxion.sh << 'END'
#!/bin/sh
flux module remove sched-simple
flux module load sched-fluxion-resource
flux module load sched-fluxion-qmanager
END
    cat > /mnt/flux/flux-view.sh << END
export PATH="\$PATH:$view/bin"
export PYTHONPATH="\${PYTHONPATH:+\$PYTHONPATH:}$packages"
export LD_LIBRARY_PATH="\${LD_LIBRARY_PATH:+\$LD_LIBRARY_PATH:}$view/lib"
export fluxsocket=$socket
END
    chmod a+x /mnt/flux/load-fluxion.sh
}

# Flux takes a certificate only from its own user, and state only in directories of its own user. What an
# instance left behind that ran in this pod before is not for this one.
install_certificate() {
    certificate=$config/etc/curve/curve.cert
    rm -f "$certificate"
    (umask 077 && cat /curve/curve.cert > "$certificate") ||
        fail 1 "user $user cannot read the certificate in /curve; set securityContext.fsGroup in the runtime"
    chmod go-rwx "$certificate"
    chown "$user" "$certificate"
    for directory in "$config/var/lib/flux" "$config/run/flux"; do
        if ! { rm -rf "$directory" && mkdir "$directory"; }; then
            fail 1 "cannot make $directory anew as user $user"
        fi
    done
}

describe_resources() {
    # shellcheck disable=SC2086  # options of ours, made of numbers
    flux R encode --hosts="$hosts" $resources > "$config/etc/flux/system/R" ||
        fail 1 "flux R encode failed for $hosts $resources"
}

# Run a broker to its end; a signal to this script is for the broker. Returns the broker's exit code.
run_broker() {
    if [ -n "$stopped" ]; then
        return 143
    fi
    flux start \
        "-o,-c$config/etc/flux/config" \
        "-o,-Scron.directory=$config/etc/flux/system/cron.d" \
        -o,-Stbon.fanout=256 \
        "-o,-Srundir=$config/run/flux" \
        "-o,-Sstatedir=$config/var/lib/flux" \
        "-o,-Slocal-uri=$socket" \
        -o,-Slog-stderr-level=0 \
        -o,-Slog-stderr-mode=local \
        "$@" &
    broker=$!
    # A signal that came before its number was known.
    [ -z "$stopped" ] || kill -TERM "$broker" 2> /dev/null
    # A signal ends `wait` before the broker ends. Whether that has ended since is not asked by `kill -0`: some
    # shells collect it at once. These say 127 of one that was waited for before.
    ended=127
    while :; do
        interrupted=
        wait "$broker"
        code=$?
        [ "$code" -eq 127 ] || ended=$code
        [ -n "$interrupted" ] || break
    done
    broker=
    return "$ended"
}

# The brokers that follow end with 0 whatever the program did. Where it failed they are told, so that all
# pods are started again and not the first one alone, which would wait for the others for ever.
run_command() {
    # shellcheck disable=SC2086,SC2016  # options of ours; the inner shell expands its own
    run_broker sh -c '
        flux run "$@"
        code=$?
        if [ "$code" -ne 0 ]; then
            timeout 60 flux exec -n sh -c "echo $code > '"$outcome"'"
        fi
        exit "$code"
    ' flux-run $run_flags -o cpu-affinity=off "$@"
}

follow() {
    attempt=1
    while :; do
        run_broker
        code=$?
        if [ "$code" -eq 0 ] || [ -n "$stopped" ]; then
            break
        elif [ "$attempt" -gt "$retries" ]; then
            say "the broker ended with exit code $code $attempt times; giving up"
            return "$code"
        fi
        say "the broker ended with exit code $code; it is started again in $retry_seconds s"
        attempt=$((attempt + 1))
        pause
    done
    if [ "$code" -eq 0 ] && [ -s "$outcome" ]; then
        # The pod with the program's last words is to be the first that fails.
        pause
        read -r code < "$outcome"
        say "the program failed with exit code $code; its output is in the log of $lead"
    fi
    return "$code"
}

pause() {
    sleep "$retry_seconds" &
    wait $!
}

main "$@"
