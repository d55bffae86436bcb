#!/bin/bash
# Becomes a plain `torchrun --nproc-per-node N` of the lab, with the defaults of torchrun.
count=$1 devices=$2 pids=$3
printf pt_elastic > "/proc/$$/comm"
export TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 GROUP_RANK=0
export MASTER_ADDR=localhost MASTER_PORT=29500 WORLD_SIZE=$count LOCAL_WORLD_SIZE=$count
for ((rank = 0; rank < count; rank++)); do
    (
        export RANK=$rank LOCAL_RANK=$rank
        for file in "$rank" -uvm; do exec {number}<> "$devices$file"; done
        # PIDs in the order of the GPUs.
        until [ "$(wc -l < "$pids")" = "$rank" ]; do sleep 0.01; done
        echo "$BASHPID" >> "$pids"
        exec setsid bash -c 'exec -a "python train.py --steps" sleep infinity'
    ) &
done
wait
