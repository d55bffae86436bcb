#!/bin/bash
# Becomes the first process of a host of the lab. `lab.py` sets the variables in capitals.
set -e
hostname "$HOST_NAME"
mount --make-rprivate /
mount --bind "$HOST/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$LAB/etc/hosts" /etc/hosts
for file in passwd group shadow; do mount --bind "$LAB/etc/$file" /etc/$file; done
mount --bind "$HOME_FOLDERS" /home
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/sshd
for id in 2001 2002; do mkdir -p -m 700 /run/user/$id; chown $id:$id /run/user/$id; done
mount -t tmpfs -o mode=755 none /usr/local/bin
if [ -n "$GPUTOP" ]; then ln -s "$GPUTOP" /usr/local/bin/gputop; fi
if [ -n "$NOEXEC_HOME" ]; then mount --bind /home /home; mount -o remount,bind,noexec /home; fi
if [ -n "$SLURM_CONTROLLER" ]; then . "${BASH_SOURCE%/*}/slurm_node.sh"; fi
if [ -n "$TORCHRUN" ]; then
    setpriv --reuid 2001 --regid 2001 --clear-groups setsid -f bash "${BASH_SOURCE%/*}/torchrun.sh" \
        "$TORCHRUN" "$HOST/dev/nvidia" "$HOST/pids" </dev/null >/dev/null 2>&1
fi
while read -r gpu id; do
    (
        exec </dev/null >/dev/null 2>&1
        for file in "$gpu" -uvm; do exec {number}<>"$HOST/dev/nvidia$file"; done
        become='echo $$ >> "$0"; exec -a "python train.py --steps" sleep infinity'
        setpriv --reuid "$id" --regid "$id" --clear-groups setsid -f bash -c "$become" "$HOST/pids"
    )
done < "$HOST/jobs"
exec /usr/sbin/sshd -D -e -f "$HOST/sshd_config" 2>> "$HOST/sshd.log"
