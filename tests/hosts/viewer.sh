#!/bin/bash
# viewer.sh LAB COMMAND…: runs a command as alice on the viewer's machine of the lab.
set -e
lab=$1
shift
mount --make-rprivate /
for file in passwd group shadow hosts; do mount --bind "$lab/etc/$file" /etc/$file; done
mount --bind "$lab/home" /home
if [ -e "$lab/slurm" ]; then
    mount --bind "$lab/slurm" /etc/slurm
    mount -t tmpfs -o mode=755 none /run
    mkdir /run/munge
    mount --bind "$lab/munge/viewer" /run/munge
fi
mkdir -p -m 700 "$lab/runtime"
chown 2001:2001 "$lab/runtime"
cd /home/alice
variables=(
    HOME=/home/alice USER=alice LOGNAME=alice SHELL=/bin/bash LANG=C.UTF-8
    TERM="${TERM:-xterm-256color}" XDG_RUNTIME_DIR="$lab/runtime" PATH="$lab/bin:/usr/bin:/bin"
)
exec setpriv --reuid 2001 --regid 2001 --clear-groups env -i "${variables[@]}" "$@"
