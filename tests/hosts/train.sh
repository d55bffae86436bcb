#!/bin/bash
# Becomes one rank of a job of the lab: a process with the files of its GPU open.
IFS=, read -ra gpus <<< "$CUDA_VISIBLE_DEVICES"
gpu=${gpus[$SLURM_LOCALID]}
export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
export LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE GROUP_RANK=$SLURM_NODEID
export MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR MASTER_PORT=29500
for file in "$gpu" -uvm; do exec {number}<> "$GPUTOP_DEVICES$file"; done
echo "$$ $gpu $RANK $SLURM_JOB_ID" >> "${GPUTOP_DEVICES%/dev/nvidia}/ranks"
exec -a "python train.py --steps" sleep infinity
