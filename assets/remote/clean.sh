# Removes every copy of gputop that an upload has left.
#
# Argument: the nonce.
n=$1;
clean() {
own "$d" drwx------ || return;
for f in "$d"/gputop-[0-9]*-* "$d"/.new-*; do
[ -f "$f" ] && rm -f "$f" && printf "\ngputop-%s\tremoved\t%s\n" "$n" "$f";
done;
rmdir "$d" 2>/dev/null;
};
places clean;
printf "\ngputop-%s\tdone\n" "$n";
