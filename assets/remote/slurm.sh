# Asks Slurm for a job, or cancels it, where squeue is.
#
# Arguments: the nonce; ask or cancel; the ID of the job.
n=$1 j=$3;
say() { printf "\ngputop-%s\t%s\t%s\n" "$n" "$1" "$2"; };
# Warnings may stand before the error.
refused() { say refused "$(printf "%s\n" "$1" | tail -n 1)"; };
command -v squeue >/dev/null || { say lacks; exit; };
[ "$2" = cancel ] && { e=$(scancel "$j" 2>&1) && say cancelled || refused "$e"; exit; };
say user "$(id -un)";
t=$(printf "\t");
# The name is the last field: it may hold anything.
o=$(squeue -h -t all -j "$j" -o "gputop-$n${t}job$t%A$t%F$t%K$t%u$t%T$t%M$t%N$t%r$t%j" 2>&1) || { refused "$o"; exit; };
printf "%s\n" "$o";
# squeue names no GPUs but in its JSON, which has all jobs of the cluster in Slurm 22.05.
scontrol -d show job "$j" 2>/dev/null </dev/null | grep "^JobId=\|^ *Nodes=" | head -n 5000 | while read -r l; do say detail "$l"; done;
say done;
