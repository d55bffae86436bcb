#!/bin/bash
# Slurm passes the environment of the host on which a step was started: this prints that of the node.
while read -r line; do echo "export $line"; done < "${0%/*}/$SLURMD_NODENAME.environment"
