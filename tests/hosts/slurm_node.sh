#!/bin/bash
# Starts Slurm on a host of the lab, from `first_process.sh`. `slurmctld` runs on the first host.
set -e
mkdir -p /run/munge /run/slurmd
chown munge:munge /run/munge
setpriv --reuid munge --regid munge --clear-groups munged \
    --key-file="$LAB/munge/munge.key" --socket=/run/munge/munge.socket.2 \
    --pid-file=/run/munge/munged.pid --log-file=/run/munge/munged.log --seed-file=/run/munge/seed
mount --bind "$LAB/slurm" /etc/slurm
if [ "$HOST_NAME" = "$SLURM_CONTROLLER" ]; then slurmctld; fi
slurmd -N "$HOST_NAME"
