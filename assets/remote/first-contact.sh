# The first command on another host: tells what is there in one line, and then becomes the agent.
#
# Arguments: the nonce; VERSION-HASH of the gputop that may have been uploaded; the fields to ask
# nvidia-smi for if there is no gputop, or nothing; its interval in seconds; the options of the
# agent.
n=$1 k=$2 q=$3 i=$4; shift 4;
# The marker begins a line, even after output of the login shell that ends in none.
mark() {
l=$(getconf GNU_LIBC_VERSION || ldd --version 2>&1 | head -n 1);
printf "\ngputop-%s\t%s\t%s\t%s\t%s\t%s\n" "$n" "$(uname -sm)" "$l" "$@";
} 2>/dev/null;
# Starts $g. Other programs are called gputop, too. With the variable, the agent reads a recorder of
# the same user in place of the host, where one runs.
start() {
v=$("$g" --version </dev/null 2>/dev/null);
case $v in "gputop "[0-9]*) mark gputop "$v" "$g"; export GPUTOP_SHARED_LINES=1; exec "$g" agent "$@";; esac;
};
copy() {
g=$d/gputop-$k;
own "$d" drwx------ && own "$g" -rwx------ && intact "$g" && { touch -c "$g" 2>/dev/null; start "$@"; };
};
for g in "$(command -v gputop)" "$HOME/.local/bin/gputop" "$HOME/.cargo/bin/gputop" /usr/local/bin/gputop; do
[ -x "$g" ] && start "$@";
done;
places copy "$@";
# A program that the profile leaves in the background keeps descriptor 3 open: head ends without it.
case $SHELL in ""|*csh) ;; *)
g=$("$SHELL" -lc "command -v gputop >&3; echo >&3" 3>&1 >/dev/null 2>&1 </dev/null | head -n 1);
[ -x "$g" ] && start "$@";;
esac;
s=$(command -v nvidia-smi || command -v /usr/lib/wsl/lib/nvidia-smi);
[ -n "$q" ] && [ -n "$s" ] && mark nvidia-smi "" "$s" && exec "$s" --query-gpu="$q" --format=csv,noheader,nounits -l "$i";
mark nothing "$s" "$c";
