# The beginning of the scripts that gputop runs on other hosts (src/source/ssh/script.rs). gputop
# sends a script as one word in single quotes to whatever login shell the user has: it has no single
# quote, no exclamation mark and no two backslashes, and gputop leaves out the comments and joins
# the lines with spaces. So each line ends in a semicolon, or in a word after which none may follow.
u=$(id -u);
# The folder for copies of gputop in the user's home.
c=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/gputop;
# Runs a command for each folder that a copy may be in, with the folder as $d.
places() {
for d in "$c" "${XDG_RUNTIME_DIR:-/nonexistent}/gputop" "/dev/shm/gputop-$u" "/tmp/gputop-$u"; do "$@"; done;
};
# Whether $1 has the type and mode $2 and belongs to this user. A link has another type.
own() {
set -- "$2" $(ls -ldn "$1" 2>/dev/null);
case $2 in "$1"*) [ "$4" = "$u" ];; *) false;; esac;
};
# Whether the SHA-256 of the file $1 ends the name $k.
intact() {
case $({ sha256sum || shasum -a 256 || openssl dgst -sha256 -r; } <"$1" 2>/dev/null) in "${k##*-} "*) ;; *) false;; esac;
};
